"""Small checkpoints, collections and finished stages for the tests of `encoder` and `search`, without downloads."""

from functools import partial
from itertools import pairwise

import torch
from tokenizers import pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    GemmaTokenizer,
    LlamaConfig,
    LlamaModel,
    LlamaTokenizer,
    MistralConfig,
    MistralModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

import collection_world
from stages import Parts, roles_of
from teleport.encoder import encode, pretrained, tokens
from teleport.encoder.load import load_backbone
from teleport.encoder.model import Encoder

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
NO_WEIGHTS = ["int32", "int8", "bool", "complex64", "float8_e4m3fn"]  # numbers that no checkpoint is trained in
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PASSAGES = [
    ("Teutberga", "Teutberga (died 11 November 875) was a queen of Lotharingia by marriage to Lothair II."),
    ("", "The café's naïve façade — Ünïcödé, 東京 is 日本の首都, 🙂 and Ελλάδα."),
    ("C++ [SEP] std", "A literal [CLS] or </s> in a text is what transformers makes of it."),
    ("Long", "word " * 70),
    ("Tabs", "tab\tand\u00a0no-break space, zero\u200bwidth, x²"),
    ("One", "a"),
]
QUERIES = {"train": ["Who was Teutberga?", "capital of Japan 東京"], "test": ["What is std?"]}


def bert_tokenizer(**options):
    """WordPiece over single characters and a few words."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "was", *LETTERS, *LETTERS[:26].upper(), *".,()é東京"]
    words += [f"##{letter}" for letter in LETTERS] + ["##ing", "word"]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)}, **options)


def roberta_tokenizer():
    """Byte-level BPE with two merges."""
    words = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        "Ġt",
        "he",
        "Ġthe",
        "<mask>",
    ]
    return RobertaTokenizer(
        vocab={word: i for i, word in enumerate(words)}, merges=[("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    )


def xlm_roberta_tokenizer():
    """SentencePiece unigrams: letters, a few others, one word."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(piece, -4.0) for piece in ["▁", *LETTERS, *LETTERS[:26].upper(), *".,?é東京"]]
    return XLMRobertaTokenizer(vocab=[*pieces, ("▁the", -2.0), ("<mask>", 0.0)])


def with_template(tokenizer, single, *names):
    """The tokenizer, which puts special tokens around a text as `single` says. names: those in it"""
    known = [(name, tokenizer.convert_tokens_to_ids(name)) for name in names]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=known)
    return tokenizer


def qwen_tokenizer():
    """Byte-level BPE as Qwen3-Embedding has it: one token is padding and the end of every text."""
    words = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he", "Ġthe"]
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
    tokenizer = Qwen2Tokenizer(vocab={word: i for i, word in enumerate(words)}, merges=merges, padding_side="left")
    return with_template(tokenizer, "$A <|endoftext|>", "<|endoftext|>")


def sentencepiece_bpe(make, special, **options):
    """BPE over letters and bytes, as Llama, Mistral and Gemma have it. special: the first tokens"""
    words = [*special, *[f"<0x{byte:02X}>" for byte in range(256)], "▁", *LETTERS, "▁t", "he", "▁the"]
    vocabulary = {word: i for i, word in enumerate(words)}
    return make(vocab=vocabulary, merges=[("▁", "t"), ("h", "e"), ("▁t", "he")], **options)


def llama_tokenizer():
    """A text begins with a token and ends without one; padding is the end's."""
    made = sentencepiece_bpe(LlamaTokenizer, ["<unk>", "<s>", "</s>"], pad_token="</s>", padding_side="left")
    return with_template(made, "<s> $A", "<s>")


def mistral_tokenizer():
    """As Llama's, but a text ends with a token too: e5-mistral-7b-instruct."""
    return with_template(llama_tokenizer(), "<s> $A </s>", "<s>", "</s>")


def gemma_tokenizer():
    """As EmbeddingGemma has it."""
    made = sentencepiece_bpe(GemmaTokenizer, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    return with_template(made, "<bos> $A <eos>", "<bos>", "<eos>")


FAMILIES = {
    "bert": (bert_tokenizer, BertConfig, BertModel, {"max_position_embeddings": 64}),
    "roberta": (roberta_tokenizer, RobertaConfig, RobertaModel, {"max_position_embeddings": 66, "pad_token_id": 1}),
    "xlm-roberta": (
        xlm_roberta_tokenizer,
        XLMRobertaConfig,
        XLMRobertaModel,
        {"max_position_embeddings": 66, "pad_token_id": 1},
    ),
    "distilbert": (bert_tokenizer, DistilBertConfig, DistilBertModel, {"max_position_embeddings": 64}),
}


PLAIN_FAMILIES = {
    "mpnet": (roberta_tokenizer, MPNetConfig, MPNetModel, {"max_position_embeddings": 66, "pad_token_id": 1}),
    "modernbert": (
        bert_tokenizer,
        ModernBertConfig,
        ModernBertModel,
        {"max_position_embeddings": 64, "pad_token_id": 0},
    ),
    "electra": (bert_tokenizer, ElectraConfig, ElectraModel, {"max_position_embeddings": 64, "embedding_size": 16}),
}
GROUPED = {"num_key_value_heads": 1, "max_position_embeddings": 64}  # one head of keys for both of queries
GEMMA = GROUPED | {"head_dim": 16, "sliding_window": 9}
# Their windows are shorter than the longest text, so that they show.
DECODERS = {
    "qwen3": (qwen_tokenizer, Qwen3Config, Qwen3Model, GROUPED | {"head_dim": 16, "pad_token_id": 0}),
    "llama": (llama_tokenizer, LlamaConfig, LlamaModel, GROUPED),
    "mistral": (mistral_tokenizer, MistralConfig, MistralModel, GROUPED | {"sliding_window": 9}),
    "gemma3": (gemma_tokenizer, Gemma3TextConfig, Gemma3TextModel, GEMMA),
    "embeddinggemma": (
        gemma_tokenizer,
        Gemma3TextConfig,
        Gemma3TextModel,
        GEMMA | {"use_bidirectional_attention": True},
    ),
}


def source_folder(path, family="bert", **config_options):
    """A transformers folder with random weights and 64 positions, as somebody else would have saved it; returns it."""
    make_tokenizer, config_class, model_class, options = (FAMILIES | PLAIN_FAMILIES | DECODERS)[family]
    tokenizer = make_tokenizer()
    config = config_class(vocab_size=len(tokenizer), **SIZE | options | config_options)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = model_class(config)
        for parameter in model.parameters():  # far from the initial values, so that a lost weight shows
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def saved_with_layers(
    tmp_path, family="embeddinggemma", widths=(48, 32), bias=False, activation=torch.nn.Identity, normalize=True
):
    """A checkpoint of sentence-transformers with linear layers behind the pooling: EmbeddingGemma, LaBSE."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    transformer = Transformer(str(source_folder(tmp_path / "source", family)), max_seq_length=20)
    layers = [Dense(*pair, bias=bias, activation_function=activation()) for pair in pairwise([32, *widths])]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for parameter in (parameter for module in layers for parameter in module.parameters()):
            torch.nn.init.normal_(parameter, std=0.2)
    modules = [transformer, Pooling(32, pooling_mode="mean"), *layers, *([Normalize()] if normalize else [])]
    model = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot")
    model.save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved"


def make_encoder(tmp_path, family="bert", pooling="mean", **options):
    """An encoder of this project with random weights, in evaluation mode. options: of `Encoder`."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = load_backbone(source_folder(tmp_path / "source", family))
        encoder = Encoder(backbone, pooling, **options)
        for parameter in encoder.head.parameters():
            torch.nn.init.normal_(parameter)
    return encoder.eval()


def make_collection(stages, passages=PASSAGES, queries=QUERIES):
    """A finished collection stage without judgments, of (title, text) and of {split: texts}."""
    passages = [(f"d{i}", title, text) for i, (title, text) in enumerate(passages)]
    return collection_world.make_collection(
        stages, passages, {split: [(f"q{i}", text) for i, text in enumerate(texts)] for split, texts in queries.items()}
    )


def pretrained_settings(folder=None, checkpoint=None, **changes):
    """Settings of a `pretrained` job."""
    places = {"hub": None, "revision": None, "folder": folder and str(folder), "package": None, "sha256": None}
    settings = {"pooling": "cls", "projection": None, "normalize": False, "tied": True}
    return {"checkpoint": places | (checkpoint or {})} | settings | changes


def make_pretrained(stages, folder, **changes):
    """A finished `pretrained` stage."""
    return stages.run(pretrained.run, "pretrained", pretrained_settings(folder, **changes))


def make_tokens(stages, collection, checkpoint, title="sep", lower_case=False, max_characters=None, **prefixes):
    """The finished `tokens` stages of the passages and of all splits of a collection, `Parts`; prefixes: query_prefix,
    passage_prefix."""
    inputs, made = {"collection": collection, "pretrained": checkpoint}, Parts()
    for role in roles_of(inputs):
        if role != "pretrained":
            of = "passages" if role == "corpus" else f"queries.{role.partition('.')[2]}"
            prefix = prefixes.get("passage_prefix" if role == "corpus" else "query_prefix", "")
            settings = {"of": of, "lower_case": lower_case, "prefix": prefix}
            settings |= {"title": title, "max_characters": max_characters} if role == "corpus" else {}
            made[f"tokens.{of}"] = stages.run(tokens.run, "tokens", settings, inputs)
    return made


def encode_all(stages, settings, inputs, **options):
    """The finished `encode` stages of all texts that `inputs` have tokens of, `Parts`. settings: without `of`"""
    texts = [role.partition(".")[2] for role in roles_of(inputs) if role.startswith("tokens.")]
    run = partial(stages.run, encode.run, "encode", **options)
    return Parts({of: run(settings=settings | {"of": of}, inputs=inputs) for of in texts})


def counted(monkeypatch, die_after=None):
    """Texts that encoders see from now on; KeyboardInterrupt after so many batches, as a kill would."""
    seen, forward = [], Encoder.forward

    def counting(self, ids_T, lengths_B):
        if die_after is not None and len(seen) == die_after:
            raise KeyboardInterrupt
        seen.append(len(lengths_B))
        return forward(self, ids_T, lengths_B)

    monkeypatch.setattr(Encoder, "forward", counting)
    return seen


def in_bfloat16(encoder):
    """The encoder with the weights of its backbone in bfloat16, which have gradients. Without numbers, where autocast
    does nothing, its attention is that of CUDA; float32's has no backward pass there."""
    for weight in encoder.backbone.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return encoder
