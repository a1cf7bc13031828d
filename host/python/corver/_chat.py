"""Chat templates, read backwards, by the same patterns as the server's (host/serve/src/reward/chat.rs).

They know the marks of the common families: ChatML (Qwen, OLMo), Llama 2 and 3, Mistral, Gemma, Phi and Tulu, DeepSeek.
"""

from __future__ import annotations

import re

#: A special token of any family. `<think>` and `<answer>` are words here.
_SPECIAL = r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>]{1,60}｜>|</?s>|<(?:pad|unk|bos|eos)>|<(?:start|end)_of_turn>|\[/?INST\]"
_SPECIALS = re.compile(_SPECIAL)
_LEADING = re.compile(rf"(?:\s|{_SPECIAL})+")
#: Where the model's turn begins.
_ASSISTANTS = re.compile(
    r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|<start_of_turn>model\n"
    r"|<\|assistant\|>\n?|<｜Assistant｜>|\[/INST\]"
)
#: A person's turn.
_USERS = re.compile(
    r"(?:<\|im_start\|>user\n|<\|start_header_id\|>user<\|end_header_id\|>\n\n|<start_of_turn>user\n|<\|user\|>\n?"
    rf"|<｜User｜>|\[INST\])\s*(.*?)\s*(?:{_SPECIAL}|\Z)",
    re.DOTALL,
)


def response(whole: str, prompt: str) -> str:
    """What the model answered, of a text that begins with its prompt; special tokens left out.

    Of a prompt that was cut on its left, the last header of the model's turn tells. Without one, it is a ``ValueError``.
    """
    if whole.startswith(prompt):
        return _words(whole[len(prompt) :])
    # A tokenizer may have put a token in front of either.
    bare_whole, bare_prompt = _bare(whole), _bare(prompt)
    if bare_prompt and bare_whole.startswith(bare_prompt):
        return _words(bare_whole[len(bare_prompt) :])
    headers = list(_ASSISTANTS.finditer(whole))
    if not headers:
        raise ValueError("the query neither begins with its prompt nor has a header of the assistant's turn")
    return _words(whole[headers[-1].end() :])


def question(prompt: str) -> str:
    """What was asked: a prompt's last turn of a person, or all of a prompt without turns."""
    turns = _USERS.findall(prompt)
    return turns[-1] if turns else _words(prompt).strip()


def _bare(text: str) -> str:
    leading = _LEADING.match(text)
    return text[leading.end() :] if leading else text


def _words(text: str) -> str:
    return _SPECIALS.sub("", text)
