"""The LLVM functions behind ldmatrix: rows of 16 bytes gathered into registers, and their usual wavefronts.

What it models: dsl/semantics/matrix_ops.py's `spread`, with the transposition of an 8 x 8 matrix as three
rounds of interleaving its rows. What it leaves out: conflicts, which gpusim/shared.py counts where there are
any. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dsl.llvm.tensor_widen import Lines

ROW = "<8 x i16>"
ROW_BYTES, MATRIX_BYTES = 16, 128


def rows_clean() -> str:
    """Return the function that says whether the 8 rows of each matrix lie in different banks (i1).

    Eight powers of two add up to 255 only if each is there once.
    """
    return """
define internal i1 @matrix_rows_clean(ptr %addresses, i64 %matrices) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %first = shl i64 %i, 3
  %place = getelementptr i64, ptr %addresses, i64 %first
  %a = load <8 x i64>, ptr %place, align 64
  %rows = lshr <8 x i64> %a, splat (i64 4)
  %group = and <8 x i64> %rows, splat (i64 7)
  %bit = shl <8 x i64> splat (i64 1), %group
  %sum = call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> %bit)
  %clean = icmp eq i64 %sum, 255
  br i1 %clean, label %next, label %no
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %matrices
  br i1 %more, label %loop, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
"""


def _interleaved(t: Lines, rows: list[str]) -> list[str]:
    """Return rows whose elements are those of row i and row i + 4 in turns: three times is the transpose."""
    out = []
    for i in range(4):
        for half in range(2):
            order = ", ".join(f"i32 {4 * half + k // 2 + 8 * (k % 2)}" for k in range(8))
            out.append(t.do(f"shufflevector {ROW} {rows[i]}, {ROW} {rows[i + 4]}, <8 x i32> <{order}>"))
    return out


def load(trans: bool) -> tuple[str, str]:
    """Return the name and text of the function that loads matrices into registers of 32 lanes at %out.

    %addresses: 32 byte offsets in shared memory, lane 8 i + r that of row r of matrix i.
    """
    name = f"ldmatrix{'_trans' if trans else ''}"
    t = Lines(f"define internal void @{name}(ptr %addresses, ptr %shared, ptr %out, i64 %matrices) noinline")
    t.put("br label %loop")
    t.put("loop:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %loop ]")
    first = t.do(f"getelementptr i64, ptr %addresses, i64 {t.do('shl i64 %i, 3')}")
    into = t.do(f"getelementptr i8, ptr %out, i64 {t.do(f'mul i64 %i, {MATRIX_BYTES}')}")
    rows = []
    for r in range(8):
        offset = t.do(f"load i64, ptr {t.at(first, 8 * r)}")
        rows.append(t.do(f"load {ROW}, ptr {t.at('%shared', offset)}, align 16"))
    for _ in range(3 if trans else 0):
        rows = _interleaved(t, rows)
    for r, row in enumerate(rows):
        t.put(f"store {ROW} {row}, ptr {t.at(into, 16 * r)}, align 16")
    t.put("%i1 = add i64 %i, 1")
    t.put("%more = icmp ult i64 %i1, %matrices")
    t.put("br i1 %more, label %loop, label %done")
    t.put("done:")
    t.put("ret void")
    return name, t.text()


DECLARED = {"llvm.vector.reduce.add.v8i64": "declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)"}
"""LLVM's own functions that these call: name -> declaration."""
