"""Writes Croissant 1.1 metadata (docs.mlcommons.org/croissant) of a corpus or a dataset. Pure.

Each file of documents or rows is a FileObject with its size and sha256. The columns of a corpus of
Parquet files are fields of the record set `documents`. The rows of a dataset are in formats that
Croissant does not read: `features` lists their features, and `splits` the splits. The flags of
build_corpus are properties of its extension for responsible AI (RAI).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from textmill.pipelines.description.counts import Metadata
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.typed_json import to_json

VERSION = "http://mlcommons.org/croissant/1.1"
RAI_VERSION = "http://mlcommons.org/croissant/RAI/1.0"
_KEYS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
# The same in every file of this version.
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{key: f"cr:{key}" for key in _KEYS},
}
_PARQUET = "application/x-parquet"
_TYPES = {"quality": "cr:Float32"}  # of columns that are not text
_MEDIA = {"parquet": _PARQUET, "zst": "application/zstd"}  # by the last ending of a file


def write_croissant(
    described: Metadata,
    files: Iterable[ManifestFile],
    languages: Iterable[str],
    steps: Sequence[str],
) -> bytes:
    """The content of croissant.json, for a directory that also holds the files.

    Args:
      described: the corpus or dataset.
      files: those with its documents or rows.
      languages: their codes.
      steps: of processing, such as "build_corpus: pii = replace".
    """
    schema, is_corpus = described.schema, described.noun == "corpus"
    own = [_file_object(file) for file in files]
    sets, records = [], []
    if is_corpus and schema["file_format"] == "parquet":
        sets = [_file_set()]
        records = [_record_set("documents", {n: _column(n) for n in schema["columns"]})]
    elif not is_corpus:
        rows = [{key: each[key] for key in ("name", "dtype", "meaning")} for each in _rows(schema)]
        splits = [{"name": split} for split in sorted(schema["splits"])]
        records = [_inline("features", rows), _inline("splits", splits)]
    values = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [VERSION, RAI_VERSION] if steps else VERSION,
        "description": f"Draft, written by Textmill {schema['code_version']} from the counts of a "
        f"{described.noun} with the fingerprint {schema['fingerprint']}. A person must add: "
        "description, license, creator, url, datePublished, which Croissant requires; version, "
        "publisher, keywords, citeAs, which are optional.",
        "distribution": [*own, *sets],
        "name": described.name,
        "recordSet": records,
        **({"inLanguage": [*languages]} if languages else {}),
        **({"rai:dataPreprocessingProtocol": [*steps]} if steps else {}),
    }
    return to_json(values)


def _file_object(file: ManifestFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "contentSize": f"{file.bytes} B",
        "contentUrl": file.path,
        "encodingFormat": _MEDIA.get(file.path.rpartition(".")[2], "application/octet-stream"),
        "name": file.path,
        "sha256": file.sha256,
    }


def _file_set() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": "files-of-documents",
        "encodingFormat": _PARQUET,
        "includes": "documents-*.parquet",
        "name": "files-of-documents",
    }


def _column(name: str) -> dict[str, Any]:
    source = {"fileSet": {"@id": "files-of-documents"}, "extract": {"column": name}}
    return {"dataType": _TYPES.get(name, "sc:Text"), "source": source}


def _rows(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**each, "dtype": f"{each['dtype']} {each['shape']}"} for each in schema["features"]]


def _inline(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A record set whose records are in the metadata."""
    fields = {key: {"dataType": "sc:Text"} for key in rows[0]}
    records = [{f"{name}/{key}": value for key, value in row.items()} for row in rows]
    return {**_record_set(name, fields), "data": records}


def _record_set(name: str, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "field": [
            {"@type": "cr:Field", "@id": f"{name}/{key}", "name": key, **value}
            for key, value in fields.items()
        ],
        "name": name,
    }
