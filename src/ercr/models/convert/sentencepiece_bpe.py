"""Converts a SentencePiece BPE model to a fast tokenizer that encodes and decodes identically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ercr.errors import CheckpointError

_NORMAL, _UNKNOWN, _USER, _BYTE = 1, 2, 4, 6  # piece types of SentencePiece
_NUL = "\0"
# spaces that the original removes when it decodes, in its order
_TIDIED: tuple[tuple[str, str], ...] = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
)
_TIDIED += (" 've", "'ve"), (" 're", "'re")


def read_model(path: Path) -> Any:
    """The parsed model file; refused unless it is BPE with byte fallback and no text normalisation."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise CheckpointError(
            "Converting this tokenizer needs the packages sentencepiece and protobuf: "
            "run pip install sentencepiece protobuf."
        ) from None
    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, OSError) as error:
        raise CheckpointError(f"The tokenizer {path} cannot be read: {error}.") from None
    spec = model.normalizer_spec
    plain = spec.name == "identity" and not spec.add_dummy_prefix and not spec.remove_extra_whitespaces
    if model.trainer_spec.model_type != 2 or not model.trainer_spec.byte_fallback or not plain:
        raise CheckpointError(
            f"The tokenizer {path} cannot be converted: only BPE with byte fallback and without text normalisation can."
        )
    return model


def fast_tokenizer(path: Path, added: Mapping[int, tuple[str, bool]], begin: str | None) -> Any:
    """A `tokenizers.Tokenizer` for a model file; `added` names tokens by id, with whether they are special.

    An added token may replace a piece. `begin` is the token that is put before every text.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    model = read_model(path)
    pieces = [added[i][0] if i in added else piece.piece for i, piece in enumerate(model.pieces)]
    # SentencePiece encodes a NUL character as a byte, although there is a piece for it
    pieces = ["<unused NUL>" if piece == _NUL else piece for piece in pieces]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    unknown = next(piece.piece for piece in model.pieces if piece.type == _UNKNOWN)
    bpe = models.BPE(vocabulary, _merges(model, vocabulary), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    steps += [decoders.Replace(written, tidy) for written, tidy in _TIDIED]
    tokenizer.decoder = decoders.Sequence(steps)
    users = [p for i, p in enumerate(pieces) if model.pieces[i].type == _USER and i not in added]
    # SentencePiece splits the text at these before it merges anything
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in users])
    for index, (text, special) in sorted(added.items()):
        tokenizer.add_tokens([AddedToken(text, normalized=False, special=special)])
        if tokenizer.token_to_id(text) != index:
            raise CheckpointError(
                f"The token {text!r} of {path.parent} cannot keep its id {index}: this tokenizer cannot be converted."
            )
    if begin is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin}:0 $A:0",
            pair=f"{begin}:0 $A:0 {begin}:1 $B:1",
            special_tokens=[(begin, tokenizer.token_to_id(begin))],
        )
    return tokenizer


def _merges(model: Any, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """All pairs of pieces that merge into a piece, those of the best-scored pieces first."""
    normal = {p.piece for p in model.pieces if p.type == _NORMAL and p.piece in vocabulary}
    found: list[tuple[float, int, int, str]] = []
    for order, piece in enumerate(model.pieces):
        text = piece.piece
        if piece.type == _NORMAL and text in normal:
            cuts = (at for at in range(1, len(text)) if text[:at] in normal and text[at:] in normal)
            found += [(-piece.score, order, at, text) for at in cuts]
    return [(text[:at], text[at:]) for _, _, at, text in sorted(found)]
