"""Renders chat templates with `transformers`, and prints them with the texts as JSON lines.

Without arguments: every template that TRL ships. With the path of ../templates.json: the templates of that
table, whose texts are replaced.
"""

import datetime
import json
import sys
from pathlib import Path

from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template


class FixedDate(datetime.datetime):
    """The date that corver gives to every template."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, tzinfo=tz)


chat_template_utils.datetime = FixedDate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
PROMPTS = [
    {"system": None, "user": "Who?"},
    {"system": "Be brief.", "user": "  Wer\u00fc \"x\"?\r\n"},
    {"system": " a\nb ", "user": "<think>x</think> y <|im_end|> \U0001f600 \\n"},
    {"system": "", "user": ""},
]
SWITCHES = [{}, {"enable_thinking": False}, {"enable_thinking": True}]


def render(template, prompt, switches):
    messages = [{"role": "user", "content": prompt["user"]}]
    if prompt["system"] is not None:
        messages.insert(0, {"role": "system", "content": prompt["system"]})
    try:
        texts, _ = render_jinja_template(
            conversations=[messages],
            tools=None,
            documents=None,
            chat_template=template,
            add_generation_prompt=True,
            **{**TOKENS, **switches},
        )
    except Exception:  # a template may refuse a prompt
        return None
    return texts[0]


def cases(template, prompts, switches):
    return [
        {**prompt, "switches": some, "text": render(template, prompt, some)} for prompt in prompts for some in switches
    ]


if __name__ == "__main__":
    if sys.argv[1:]:
        path = Path(sys.argv[1])
        table = json.loads(path.read_text(encoding="utf-8"))
        for entry in table:
            switches = [case["switches"] for case in entry.get("cases", [])][:1] or [{}]
            entry["cases"] = cases(entry["template"], PROMPTS[1:2], switches)
        path.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    else:
        import trl

        for path in sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja")):
            # As `transformers` reads the file: line ends become "\n".
            template = path.read_text(encoding="utf-8")
            print(json.dumps({"name": path.stem, "template": template, "cases": cases(template, PROMPTS, SWITCHES)}))
