"""`labelnoise embed` and `corrupt`: features from raw data, and labels with known noise."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from labelnoise.cli.terminal import Device, Json, LabelsFile, Quiet, Seed, print_json, progress


class Kind(StrEnum):
    """What can be embedded."""

    IMAGES = "images"
    TEXTS = "texts"
    TABLE = "table"


class Noise(StrEnum):
    """Noise that can be made."""

    SYMMETRIC = "symmetric"
    PAIR = "pair"
    CLASS = "class"
    INSTANCE = "instance"


Source = Annotated[
    Path,
    Argument(
        help="A folder of images; a table of paths, texts or rows (.csv, .parquet); a .txt file "
        "with a text a line; a .npy file of images."
    ),
]
Encoder = Annotated[
    str | None,
    Option(
        help="For images efficientnet_lite0 (default), _lite1, _lite2, torchvision:MODEL or "
        "timm:MODEL; for texts minilm (default) or a model of sentence-transformers."
    ),
]
NoiseKind = Annotated[
    Noise,
    Option(
        help="symmetric: to any other class; pair: to the next; class: by --matrix; instance: to "
        "where the features point."
    ),
]


def embed(
    source: Source,
    out: Annotated[Path, Option(help="Where the features go, .npy.")],
    kind: Annotated[Kind | None, Option(help="What is in a table.")] = None,
    encoder: Encoder = None,
    column: Annotated[str | None, Option(help="The column with paths or texts.")] = None,
    root: Annotated[Path | None, Option(help="Where the paths of a table start.")] = None,
    drop: Annotated[list[str] | None, Option(help="A table's column to leave out.")] = None,
    batch_size: Annotated[int | None, Option(min=1, help="How many at once.")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Turn images, texts or the rows of a table into features. After a kill, it continues."""
    from labelnoise.io.tables import TABLES

    if kind is None:
        if source.suffix.lower() in TABLES:
            raise BadParameter("a table needs --kind images, texts or table")
        kind = Kind.TEXTS if source.suffix == ".txt" else Kind.IMAGES
    with progress(quiet) as show:
        show("reading", 0, 0)
        from labelnoise.io import embedding
        from labelnoise.io.arrays import read_array
        from labelnoise.io.outputs import check_outputs, names_file

        check_outputs({out: (".npy",), names_file(out): (".csv",)}, [source])
        how: dict[str, Any] = {"column": column, "device": device, "progress": show}
        how |= {} if encoder is None else {"encoder": encoder}
        how |= {} if batch_size is None else {"batch_size": batch_size}
        if kind is Kind.TABLE:
            found = embedding.embed_table(source, drop=drop or (), out=out)
        elif kind is Kind.TEXTS:
            found = embedding.embed_texts(source, out=out, **how)
        elif source.suffix == ".npy":
            found = embedding.embed_images(read_array(source, None, 4), out=out, **how)
        else:
            found = embedding.embed_images(source, root=root, out=out, **how)
    n, d = found.features.shape
    unit = {Kind.IMAGES: "images", Kind.TEXTS: "texts", Kind.TABLE: "rows"}[kind]
    print(f"{n:,} {unit} became {d} features each: {out}")
    if found.failed:
        print(f"{len(found.failed):,} could not be read and have none: see {names_file(out)}")
        for name, reason in found.failed[:3]:
            print(f"  {name}: {reason}")
    if kind is Kind.TABLE:
        print("Tables have no natural origin: use --metric euclidean with these features.")


def corrupt(
    labels: LabelsFile,
    out: Annotated[Path, Option(help="Where the noisy ones go, .npy, .csv or .parquet.")],
    kind: NoiseKind = Noise.SYMMETRIC,
    rate: Annotated[float | None, Option(help="Share of labels to make wrong, 0 to 1.")] = None,
    features: Annotated[str | None, Option(metavar="FILE", help="For instance noise.")] = None,
    matrix: Annotated[Path | None, Option(help="T for class noise, .json or .npy.")] = None,
    scale: Annotated[
        str, Option(help="Of features, for instance noise: unit, standard, or raw as in the paper.")
    ] = "unit",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make labels wrong on purpose, by noise that is known, to see what a method finds."""
    for name, value, needed in (
        ("--rate", rate, kind is not Noise.CLASS),
        ("--features", features, kind is Noise.INSTANCE),
        ("--matrix", matrix, kind is Noise.CLASS),
    ):
        if needed != (value is not None):
            verb = "needs" if needed else "takes no"
            raise BadParameter(f"--kind {kind} {verb} {name}")
    from labelnoise import noise
    from labelnoise.io.features import read_features
    from labelnoise.io.labels import read_labels, write_labels
    from labelnoise.io.outputs import check_outputs

    check_outputs({out: (".npy", ".csv", ".parquet")}, [labels, features, matrix])
    X = None if features is None else read_features(features)
    clean = read_labels(labels, X)
    if X is not None:
        make = noise.instance_dependent
        noisy = make(X.array, clean.array, rate or 0.0, scale=scale, random_state=seed)
    elif matrix is not None:
        T, classes = _matrix(matrix)
        noisy = noise.class_conditional(clean.array, T, classes=classes, random_state=seed)
    else:
        flip = noise.pair_flip if kind is Noise.PAIR else noise.symmetric
        noisy = flip(clean.array, rate or 0.0, random_state=seed)
    write_labels(out, clean, noisy.labels)
    n, changed = len(noisy.labels), round(noisy.rate * len(noisy.labels))
    if as_json:
        kept = ("kind", "rate", "classes", "transition_matrix", "n_lowered")
        print_json({name: getattr(noisy, name) for name in kept} | {"n": n, "out": str(out)})
        return
    print(f"{changed:,} of {n:,} labels ({noisy.rate:.1%}) changed, {noisy.kind} noise: {out}")
    if noisy.n_lowered:
        print(f"{noisy.n_lowered:,} examples could not be given a rate as high as was drawn.")


def _matrix(path: Path) -> tuple[Any, Any]:
    """T of a file, and its classes where it says them."""
    from labelnoise.hoc import HOC
    from labelnoise.io.features import read_features

    if path.suffix.lower() == ".json":
        est = HOC.load(path)
        return est.transition_matrix_, est.classes_
    return read_features(str(path)).array, None
