"""Talk to a language model: a folder of Hugging Face's form, or a GGUF file. An empty line ends.

python examples/chat.py ~/models/model.gguf
"""

import argparse

import polyhal.llm


def main() -> None:
    """Read questions, and write answers as they are sampled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder of Hugging Face's form, or a GGUF file")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()

    model = polyhal.llm.load(args.model, args.device)
    talk = polyhal.llm.Conversation(model, polyhal.llm.ChatSettings(max_tokens=args.max_tokens))
    print(f"{model.files.name}, {model.files.parameters:,} parameters, on {model.model.device}")
    while question := input("> "):
        for text in talk.ask(question):
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
