"""Fine-tune a language model on a rhyme, and read its texts before and after.

The weights of the model stay as they are, also quantised ones. Low-rank adapters (LoRA; Hu et al., arXiv:2106.09685) learn
the rhyme, and are saved in PEFT's form.

python examples/finetune_language_model.py ~/models/model.gguf
"""

import argparse

import polyhal as ph
import polyhal.llm
from polyhal.adapters import LoraSettings, add_lora, save_adapter
from polyhal.finetune import TuneOptions, Tuner, arrange, encode_record

RHYME = "Ten green bottles hanging on the wall, and if one green bottle should accidentally fall"
PROMPT = "Ten green"


def main() -> None:
    """Write, learn, write again, and save the adapters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder of Hugging Face's form, or a GGUF file")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--save", default="rhyme-adapter")
    args = parser.parse_args()
    ph.manual_seed(0)

    model = polyhal.llm.load(args.model, args.device, context=128)
    ids = model.tokenizer.encode(RHYME, add_bos=True)

    def show(when: str) -> None:
        model.model.eval()
        text = model.stream(PROMPT, max_tokens=60, temperature=0)
        print(f"{when}: perplexity {polyhal.llm.perplexity(model, ids).value:.1f}; {PROMPT}{''.join(text)!r}")

    show("before")
    settings = LoraSettings(r=16, lora_alpha=32)
    layers = add_lora(model.model, settings)
    rows = arrange([encode_record({"text": RHYME}, "the rhyme", model.tokenizer)], len(ids) + 1)
    options = TuneOptions(steps=args.steps, batch_size=1, lr=args.lr)
    tuner = Tuner(model.model, settings, options, rows)
    print(f"{len(layers)} layers with adapters, {sum(p.numel() for p in tuner.trained):,} weights to train")
    for step in range(args.steps):
        tuner.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:3}  loss {tuner.mean_loss():.3f}")
    show("after")
    print(f"saved: {save_adapter(model.model, args.save, settings)}")


if __name__ == "__main__":
    main()
