"""Recipes and plans: facts about methods, that training, help and docs read."""

from pathlib import Path

import pytest

from labelnoise import LabelNoiseError
from labelnoise.training import METHODS, PLANS, RECIPES, Recipe, Schedule, plan_named
from labelnoise.training.schedules import Moment

DOCS = Path(__file__).parents[2] / "docs"


def test_each_method_has_a_recipe():
    assert list(METHODS) == list(RECIPES)
    assert all(recipe.summary.endswith(".") for recipe in RECIPES.values())


def test_a_recipe_changes_all_of_a_schedule_but_its_epochs():
    plan = Schedule(((0.1, 20), (0.01, 10)), batch_size=256, balanced_batches=None)
    jocor = RECIPES["jocor"].schedule(plan, 50_000)
    assert (jocor.n_epochs, jocor.batch_size, jocor.optimizer) == (30, 128, "adam")
    assert [jocor.rate(epoch) for epoch in (0, 12, 21)] == pytest.approx([1e-3, 1e-3, 5e-4])
    assert RECIPES["ce"].schedule(plan, 50_000) == plan


def test_tiny_steps_get_as_far_in_a_shorter_training():
    """Published: 200 epochs of 390 steps at 5e-7."""
    plan = Schedule(((0.1, 20),), batch_size=128)
    rate = RECIPES["t-revision"].schedule(plan, 50_000).rate(0)
    assert rate == pytest.approx(5e-6)
    again = Recipe("", rate=1.0).schedule(plan, 50_000)
    assert again.rate(19.5) == 1.0


def test_lengths_are_steps_or_shares():
    """A whole number counts steps, a fraction is a share of the training."""
    moment = Moment(step=30, n_steps=120, steps_per_epoch=10)
    assert moment.passed(60) == 0.5
    assert moment.passed(0.5) == 0.5
    assert moment.passed(40, after=20) == 0.25
    assert moment.passed(0.25, after=0.125) == 0.5
    assert [moment.passed(0, after=n) for n in (30, 31)] == [1, 0]
    assert Moment(200, 120, 10).passed(60) == 1


def test_the_papers_schedules():
    assert PLANS["cifar10"].final.n_epochs == 180
    rates = [PLANS["cifar10"].final.rate(epoch) for epoch in (0, 59.9, 60, 119, 120, 179)]
    assert rates == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    assert PLANS["cifar100"].second.n_epochs == 60
    assert PLANS["clothing1m"].final.n_epochs == 80
    assert PLANS["clothing1m"].first.balanced_batches == 1000
    with pytest.raises(LabelNoiseError, match=r"one of .*'brief'.*, but it is 'long'"):
        plan_named("long")


def test_help_explains_every_method_and_plan(run):
    shown = " ".join(run("train", "--help")[1].split())
    for name, known in (*RECIPES.items(), *PLANS.items()):
        assert f"{name}: {known.summary}" in shown


def test_the_page_on_training_has_the_facts_of_the_recipes():
    page = (DOCS / "training.md").read_text()
    for name, recipe in RECIPES.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        own = [recipe.optimizer, recipe.rate, recipe.batch_size, recipe.warm_up, recipe.ramp]
        assert cells[2:] == [str(value) if value else "" for value in own]
