"""The case rule of a tokenizer, written into the files from which a checkpoint's users load it."""

import json

from teleport.encoder.checkpoint import sides
from teleport.encoder.tokens import load_tokenizer
from teleport.runtime.files import write_json


def save_lower_case(checkpoint, lower_case):
    """Have every tokenizer of a checkpoint folder lower-case its texts (True) or not (False), as `tokens` does.

    May be repeated. transformers' BertTokenizer and RobertaTokenizer make the normalizer anew from their own options
    and vocabulary, so the folder names the class that takes tokenizer.json as it is, with the special tokens and
    inputs that those classes bring along.
    """
    for folder in dict.fromkeys(sides(checkpoint)):
        tokenizer, special = load_tokenizer(folder, lower_case)
        tokenizer.save(str(folder / "tokenizer.json"))
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        config |= {f"{name}_token": tokenizer.id_to_token(special[name]) for name in ("cls", "sep", "pad", "unk")}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": lower_case}
        write_json(path, config | {"model_input_names": ["input_ids", "attention_mask"]})
