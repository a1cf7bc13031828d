"""Runs the official indexer on token ids: python index_ids.py WIDTH SHARDS INPUT_DIR OUTPUT_DIR

INPUT_DIR holds one JSONL file whose `text` is a list of ids with blanks between. The indexer only knows three tokenizers by
name, fetched with `transformers`; here a module of that name hands it one that reads the ids.
"""

import resource
import sys
import types


class Ids:
    def encode(self, text):
        return [int(token) for token in text.split()]


transformers = types.ModuleType("transformers")
transformers.utils = types.SimpleNamespace(logging=types.SimpleNamespace(set_verbosity=lambda level: None))
transformers.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda *args, **kwargs: Ids())
sys.modules["transformers"] = transformers

from infini_gram import indexing  # noqa: E402

width, shards, data, out = sys.argv[1:]
files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # its default is more than most systems allow
# One process: with more it writes garbage for inputs below 100,000 bytes per process.
sys.argv = ["indexing", "--data_dir", data, "--save_dir", out, "--tokenizer", "gpt2", "--token_dtype", width]
sys.argv += ["--shards", shards, "--cpus", "1", "--mem", "1", "--ulimit", str(files)]
indexing.main()
