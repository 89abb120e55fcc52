"""An encoder as transformers computes it, to compare ours with, and `padded`, which makes its input."""

from transformers import AutoConfig, AutoModel

from padding import padded  # noqa: F401
from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.model import Encoder


def reference_of(encoder):
    """The same `Encoder` with a backbone of transformers, whose parameters are those of `encoder` themselves."""
    config = AutoConfig.for_model(**encoder.backbone.raw_config)
    pooler = {"add_pooling_layer": False} if ARCHITECTURES[config.model_type].pooler else {}
    backbone = AutoModel.from_config(config, attn_implementation="sdpa", **pooler)
    own, weights = encoder.backbone.own_names(), encoder.backbone.state_dict(keep_vars=True)
    backbone.load_state_dict({own[name]: weights[name] for name in own}, assign=True)
    reference = Encoder(backbone, encoder.pooling, encoder.projection, encoder.normalize)
    reference.head = encoder.head
    return reference.train(encoder.training)
