"""Where the core may be mutated: cosmic-ray's operators, without those places whose mutants mean nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.work_item import WorkItem

# of each operator of the language one or two replacements: those that a slip of the pen would make
OPERATORS = re.compile(
    "core/(?:"
    "ReplaceBinaryOperator_(?:Add_Sub|Add_Mul|Sub_Add|Sub_Mul|Mul_Add|Mul_Div|Div_Mul|Div_FloorDiv|FloorDiv_Div|"
    "FloorDiv_Mul|Mod_Mul|Pow_Mul|RShift_LShift|LShift_RShift|BitOr_BitAnd|BitAnd_BitOr|BitXor_BitAnd)|"
    "ReplaceComparisonOperator_(?:Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt|"
    "Is_IsNot|IsNot_Is)|"
    "ReplaceUnaryOperator_Delete_(?:USub|Not|Invert)|"
    "AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue|"
    "ReplaceContinueWithBreak|ExceptionReplacer|NumberReplacer|ZeroIterationForLoop)"
)
Place = tuple[int, int]  # line, column


def items(path: Path) -> list[WorkItem]:
    """All mutants of a module, in the order of their places."""
    idle = list(_idle(ast.parse(path.read_text())))
    found = [item for item in _all_work_items([path], {}) if OPERATORS.fullmatch(item.mutations[0].operator_name)]
    kept = [item for item in found if not any(a <= item.mutations[0].start_pos < b for a, b in idle)]
    return sorted(kept, key=lambda item: (item.mutations[0].start_pos, item.mutations[0].operator_name))


def _idle(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """Annotations, which are never computed, and decorators: how many results a cache holds changes only the speed."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        for part in parts:
            if part is not None and part.end_lineno is not None and part.end_col_offset is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)
