"""What a classifier's run leaves for others: published weights, a SavedModel."""

from pathlib import Path

from schemas.sidecar import Schema
from trainers.models.encoder import to_config_json
from trainers.models.hf_files import tokenizer_settings, write_directory
from trainers.models.set_tokenizer import kept_tokenizer
from trainers.on_tf.backend import tf
from trainers.on_tf.classifier import Classifier
from trainers.on_tf.classifier_config import ClassifierConfig
from trainers.on_tf.encoder import Encoder
from trainers.on_tf.encoder_weights import read, to_hugging_face
from trainers.on_tf.saved_model import write_module
from trainers.run.journal import ProgressLine


def export_all(config: ClassifierConfig, output: Path, learner: Classifier, schema: Schema) -> None:
    """Writes what --export and --export_saved_model ask for, from the model as it is.

    Raises:
      UsageError: a directory is taken.
      DataError: one cannot be written.
    """
    line = ProgressLine()
    if config.export is not None:
        model, tokenizer = learner.model, kept_tokenizer(output)
        write_directory(
            config.export,
            to_config_json(model.sizes, schema.special_ids),
            to_hugging_face(read(model), model.sizes),
            tokenizer,
            tokenizer_settings(tokenizer, schema.special_ids, max_length=model.sizes.max_positions),
        )
        line.say(f"weights for transformers: {config.export}")
    if config.export_saved_model is not None:
        write_saved_model(config.export_saved_model, learner.model, schema)
        line.say(f"SavedModel: {config.export_saved_model}")


class Served(tf.Module):
    """A classifier as a SavedModel's signature: ids in, probabilities and names out."""

    def __init__(self, model: Encoder, *, has_pairs: bool):
        """Takes the model; with `has_pairs` its signature asks for token types too."""
        super().__init__(name="classifier")
        self.model = model
        self.weights = [variable.value for variable in model.variables]
        self.classes = tf.constant(model.sizes.classes)
        ids = tf.TensorSpec((None, None), tf.int32)
        features = ("input_ids", "segment_ids", "token_type_ids")[: 3 if has_pairs else 2]
        specs = {name: tf.TensorSpec(ids.shape, ids.dtype, name=name) for name in features}
        self.serve = tf.function(self._serve).get_concrete_function(**specs)

    def _serve(self, input_ids, segment_ids, token_type_ids=None):
        logits = self.model(input_ids, segment_ids, token_type_ids)
        chosen = tf.argmax(logits, axis=1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "label": tf.gather(self.classes, chosen),
        }


def write_saved_model(path: str, model: Encoder, schema: Schema) -> None:
    """Writes a SavedModel, whole or not at all.

    Its `serving_default` takes int32 [rows, tokens] `input_ids` and `segment_ids` (1 for a token, 0
    for padding), for pairs `token_type_ids` too, and gives `logits`, `probabilities` [rows,
    classes] and `label`, the name of the likeliest class. It needs TensorFlow and nothing of ours.

    Raises:
      UsageError: the path is taken.
      DataError: it cannot be written.
    """
    served = Served(model, has_pairs="text_pair_field" in schema.parameters)
    write_module(path, served, served.serve, {})
