"""Exports the models of nli.py as Optimum does, FOLDER/*/onnx/model.onnx: export.py FOLDER. Needs the packages onnx and onnxscript.

HHEM is exported as the classifier of tokens that it is: logits of every token.
"""

import sys
import warnings
from pathlib import Path

import nli
import torch


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model.float()

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def export(model, tokenizer, path):
    path.parent.mkdir(exist_ok=True)
    inputs = tokenizer(["Who wrote it?", "It is not known."], ["It is."] * 2, padding=True, return_tensors="pt")
    names = ["input_ids", "attention_mask"]
    free = {name: {0: "batch", 1: "tokens"} for name in names} | {"logits": {0: "batch"}}
    torch.onnx.export(
        Logits(model).eval(), tuple(inputs[name] for name in names), str(path), input_names=names, output_names=["logits"],
        dynamic_axes=free, opset_version=17, dynamo=False,
    )


def main(folder):
    warnings.simplefilter("ignore")
    hhem, deberta = nli.small(folder)
    export(*hhem, folder / "hhem/onnx/model.onnx")
    export(*deberta, folder / "deberta/onnx/model.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
