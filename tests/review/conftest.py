"""Folders of results, each made once and copied for each test."""

import shutil

import pytest

from labelnoise.results import Results
from labelnoise.review.export import open_review
from tests.review.data import image_results, table_results


@pytest.fixture(scope="session")
def _images(tmp_path_factory):
    return image_results(tmp_path_factory.mktemp("images"), keep=slice(600))


@pytest.fixture(scope="session")
def _texts(tmp_path_factory):
    return table_results(tmp_path_factory.mktemp("texts"))


@pytest.fixture
def images(_images, tmp_path):
    """Results of 600 images, and their true classes."""
    results, true = _images
    return Results.open(shutil.copytree(results.folder, tmp_path / "results")), true


@pytest.fixture
def texts(_texts, tmp_path):
    """Results of 1,797 texts in a CSV file, and their true classes."""
    results, true = _texts
    return Results.open(shutil.copytree(results.folder, tmp_path / "results")), true


@pytest.fixture
def review(images):
    """A review of the images."""
    found = open_review(images[0])
    yield found
    found.store.close()


@pytest.fixture
def text_review(texts):
    """A review of the texts."""
    found = open_review(texts[0])
    yield found
    found.store.close()
