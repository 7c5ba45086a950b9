//! Kernels of copies between tensors whose innermost dims differ: a block moves a tile through shared memory, so that neighbouring threads
//! read neighbours and write neighbours.

use super::kernel::{ADDS, Kernel, Threads, parameters};
use super::spell::spelling;
use super::tables::Tables;
use crate::group::{Node, Program, Read};
use crate::scalar::{Access, Strides};

/// Rows and columns of a tile, as many as a warp has threads.
const TILE: usize = 32;
/// Threads of a block, which take eight rows of a tile at a time.
const BLOCK: usize = 256;
/// The fewest elements along both dims of a tile: with fewer, more threads would have no element than have one.
const LEAST: usize = 16;

/// A move of elements as a stack of transposed matrices.
struct Move {
    /// The dims that are neither rows nor columns, in the source and in the result.
    outer: [Strides; 2],
    /// The dim along which the source is contiguous: its size, and its stride in the result.
    rows: (usize, usize),
    /// The last dim of the result: its size, and its stride in the source.
    columns: (usize, usize),
}

impl Move {
    /// The move of a program, if it is one that does nothing else.
    fn of(program: &Program) -> Option<Move> {
        let [input, value] = &program.values[..] else { return None };
        let ([out], Node::Input) = (&program.outs[..], &input.node) else { return None };
        let Node::Convert(Read { value: 0, access: Access::Strided(strides) }) = &value.node else { return None };
        let Strides { mut dims, offset } = strides.merged();
        let (columns, stride) = dims.pop()?;
        let at = dims.iter().position(|&(size, stride)| stride == 1 && size >= LEAST)?;
        if out.value != 1 || out.columns.is_some() || stride < 2 || columns < LEAST {
            return None;
        }
        // The strides of the result are those of a dense tensor.
        let mut to = dims.clone();
        let mut behind = columns;
        for (size, stride) in to.iter_mut().rev() {
            *stride = behind;
            behind *= *size;
        }
        dims.remove(at);
        let rows = to.remove(at);
        let outer = [Strides { dims, offset }, Strides { dims: to, offset: 0 }];
        Some(Move { outer, rows, columns: (columns, stride) })
    }
}

/// The kernel of a program that only moves elements between tensors whose innermost dims differ, none of them short.
pub(super) fn kernel(program: &Program) -> Option<Kernel> {
    let Move { outer, rows: (rows, to_row), columns: (columns, from_column) } = Move::of(program)?;
    let mut tables = Tables::default();
    let [from, to] = outer.each_ref().map(|strides| tables.place(strides));
    let [of, into] = [program.values[0].element, program.outs[0].element];
    let (scalar, number) = (spelling(of).scalar, spelling(program.values[1].element).number);
    let (load, store) = (spelling(of).suffix, spelling(into).suffix);
    let [down, across] = [rows, columns].map(|size| size.div_ceil(TILE));
    let stack: usize = outer[0].dims.iter().map(|dim| dim.0).product();
    let tiles = stack * down * across;
    let value = format!("({number})load_{load}(tile[x][y])");
    let value = match program.outs[0].adds {
        true => format!("{ADDS} & 1 ? load_{store}(out0[place]) + {value} : {value}"),
        false => value,
    };
    let head = parameters(program, &format!("__launch_bounds__({BLOCK}) "), &[]);
    let step = BLOCK / TILE;
    // A row of a tile has a place more, so that neighbours of a column lie in different banks of shared memory.
    let text = format!(
        "{head} {{
    __shared__ {scalar} tile[{TILE}][{TILE} + 1];
    unsigned int x = threadIdx.x % {TILE};
    for (unsigned long long team = blockIdx.x; team < {tiles}ull; team += gridDim.x) {{
        unsigned long long column = team % {across}u * {TILE}, row = team / {across}u % {down}u * {TILE}, other = team / {all}ull;
        unsigned long long from = {from}(other), to = {to}(other);
        for (unsigned int y = threadIdx.x / {TILE}; y < {TILE}; y += {step}) {{
            if (row + x < {rows}ull && column + y < {columns}ull) tile[y][x] = in0[from + row + x + (column + y) * {from_column}ull];
        }}
        __syncthreads();
        for (unsigned int y = threadIdx.x / {TILE}; y < {TILE}; y += {step}) {{
            unsigned long long place = to + (row + y) * {to_row}ull + column + x;
            if (row + y < {rows}ull && column + x < {columns}ull) out0[place] = store_{store}({value});
        }}
        __syncthreads();
    }}
}}
",
        all = down * across,
    );
    let shape = Threads { block: BLOCK as u32, elements: None, teams: tiles, of_block: 1 };
    Some(Kernel { source: tables.text() + &text, shape, partials: 0, apart: vec![0], is_narrow: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Element;

    fn is_tiled(dims: &[(usize, usize)]) -> bool {
        let access = Access::Strided(Strides { dims: dims.to_vec(), offset: 0 });
        let len = dims.iter().map(|dim| dim.0).product();
        kernel(&Program::copy([Element::F32; 2], (access, len), len)).is_some()
    }

    #[test]
    fn matrices_that_are_transposed_go_by_tiles() {
        // [b, m, k] to [b, k, m], and [m, b, k] to [b, k, m].
        assert!(is_tiled(&[(3, 800), (40, 1), (20, 40)]));
        assert!(is_tiled(&[(3, 40), (40, 1), (20, 120)]));
        // The last dim of both is the same, is short, or repeats one element.
        assert!(!is_tiled(&[(3, 40), (20, 120), (40, 1)]));
        assert!(!is_tiled(&[(40, 1), (2, 40)]));
        assert!(!is_tiled(&[(4, 1), (20, 4)]));
        assert!(!is_tiled(&[(40, 1), (20, 0)]));
    }
}
