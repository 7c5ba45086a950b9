//! The elements of a parameter in the tensors of a file: each dim of the parameter walks through a tensor in equal steps.
//! Transposed matrices, matrices that are joined, and experts that are stored one by one all have this form.

use checkpoint::Shard;
use ir::models::TensorSource;
use std::ops::Range;

/// Side of the squares in which elements are copied, so that both sides stay in the cache.
const TILE: usize = 32;

/// The path of one dim of a parameter through a tensor, in elements of the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stride {
    /// Neighbours are at this distance.
    Even(usize),
    /// Pairs among the first `turned` elements: those that a rotary position turns together are neighbours at the distance `step`, and
    /// `turned / 2` apart in the parameter. The others are at this distance from each other.
    Paired {
        /// The distance.
        step: usize,
        /// The elements that turn, an even number.
        turned: usize,
    },
    /// Equal parts: neighbours within a part are at the distance `step`, and the parts at another one.
    Parted {
        /// The distance of neighbours.
        step: usize,
        /// The elements of a part.
        size: usize,
        /// The distance from one part to the next.
        distance: usize,
    },
}

/// A parameter, or one index of its first dim, in a tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The name of the tensor.
    pub tensor: String,
    /// The sizes of the tensor.
    pub shape: Vec<u64>,
    /// The place of the first element in the tensor.
    pub first: usize,
    /// The dims of the parameter: size and step.
    pub dims: Vec<(u64, Stride)>,
}

/// The tensors that a parameter consists of.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// The sizes of the parameter.
    pub sizes: Vec<u64>,
    /// One piece; or one for each index of the first dim.
    pub pieces: Vec<Piece>,
    /// True if there is a piece for each index of the first dim.
    pub is_split: bool,
    /// The number that is added to each element of the file.
    pub shift: f32,
}

/// A box of a parameter within one piece.
pub(crate) struct PieceBox<'a> {
    pub(crate) piece: &'a Piece,
    /// The box, in the dims of the piece.
    pub(crate) shard: Shard,
    /// The place of its first element among those of the whole box.
    pub(crate) at: usize,
}

impl Source {
    /// Gives the place of a parameter of an exported model.
    pub(crate) fn exported(from: &TensorSource) -> Source {
        let piece = Piece {
            tensor: from.tensor.clone(),
            shape: from.shape.clone(),
            first: from.first as usize,
            dims: from.dims.iter().map(|&(size, step)| (size, Stride::Even(step as usize))).collect(),
        };
        let sizes = from.dims.iter().map(|&(size, _)| size).collect();
        Source { sizes, pieces: vec![piece], is_split: false, shift: from.shift as f32 }
    }

    /// The elements of the parameter, from those of its tensors. Nothing is added to them.
    pub fn collect<'a>(&self, tensor: impl Fn(&str) -> &'a [f32]) -> Vec<f32> {
        let whole = Shard { offset: vec![0; self.sizes.len()], shape: self.sizes.clone() };
        let mut own = vec![0.0; whole.elements() as usize];
        for part in self.parts(&whole) {
            let elements = tensor(&part.piece.tensor);
            part.piece.walk(&part.shard, |file, at| own[part.at + at] = elements[file]);
        }
        own
    }

    /// The pieces that a box meets.
    pub(crate) fn parts(&self, shard: &Shard) -> Vec<PieceBox<'_>> {
        if !self.is_split {
            return vec![PieceBox { piece: &self.pieces[0], shard: shard.clone(), at: 0 }];
        }
        let inner = Shard { offset: shard.offset[1..].to_vec(), shape: shard.shape[1..].to_vec() };
        let first = shard.offset[0] as usize;
        let parts = (0..shard.shape[0] as usize).map(|number| PieceBox {
            piece: &self.pieces[first + number],
            shard: inner.clone(),
            at: number * inner.elements() as usize,
        });
        parts.collect()
    }

    /// The box of the parameter that one piece has.
    pub(crate) fn shard_of(&self, piece: usize) -> Shard {
        let (mut offset, mut shape) = (vec![0; self.sizes.len()], self.sizes.clone());
        if self.is_split {
            (offset[0], shape[0]) = (piece as u64, 1);
        }
        Shard { offset, shape }
    }
}

/// Dims with even steps on both sides.
#[derive(Clone, Default)]
pub(crate) struct Strided {
    sizes: Vec<usize>,
    /// First element and steps in the file.
    file: (usize, Vec<usize>),
    /// First element and steps in the box.
    own: (usize, Vec<usize>),
}

impl Piece {
    /// Makes neighbours in the last dim those that a rotary position turns together: of the first `turned` elements, or of all.
    pub(crate) fn pair(&mut self, turned: Option<u64>) {
        if let Some((size, stride)) = self.dims.last_mut()
            && let Stride::Even(step) = *stride
        {
            *stride = Stride::Paired { step, turned: turned.unwrap_or(*size) as usize };
        }
    }

    /// A box in parts whose elements are near each other in the tensor: at most `most` from the first to the last, where dims can be cut.
    pub(crate) fn near(&self, shard: &Shard, most: usize) -> Vec<Strided> {
        self.strided(shard).into_iter().flat_map(|part| part.within(most)).collect()
    }

    /// Calls `f` with the place in the tensor and the place in the box of each element of a box.
    pub(crate) fn walk(&self, shard: &Shard, mut f: impl FnMut(usize, usize)) {
        for part in self.strided(shard) {
            part.walk(&mut f);
        }
    }

    /// The box in parts with even steps.
    fn strided(&self, shard: &Shard) -> Vec<Strided> {
        let own = strides(&shard.shape);
        let mut parts = vec![Strided { file: (self.first, Vec::new()), ..Strided::default() }];
        for (d, &(_, step)) in self.dims.iter().enumerate() {
            let (from, to) = (shard.offset[d] as usize, (shard.offset[d] + shard.shape[d]) as usize);
            // Range of indices, place of the first, step.
            let ranges = match step {
                Stride::Even(step) => vec![(from..to, from * step, step)],
                Stride::Paired { step, turned } => {
                    let half = turned / 2;
                    let (high, rest) = (from.max(half), from.max(turned));
                    vec![
                        (from..to.min(half), 2 * from * step, 2 * step),
                        (high..to.min(turned), (2 * high.saturating_sub(half) + 1) * step, 2 * step),
                        (rest..to, rest * step, step),
                    ]
                }
                Stride::Parted { step, size, distance } => (from / size..to.div_ceil(size))
                    .map(|part| {
                        let (start, end) = (from.max(part * size), to.min((part + 1) * size));
                        (start..end, part * distance + (start - part * size) * step, step)
                    })
                    .collect(),
            };
            let mut next = Vec::new();
            for part in &parts {
                for (range, first, step) in ranges.iter().filter(|(range, ..)| !range.is_empty()) {
                    let mut part = part.clone();
                    part.sizes.push(range.len());
                    part.file.0 += first;
                    part.file.1.push(*step);
                    part.own.0 += (range.start - from) * own[d];
                    part.own.1.push(own[d]);
                    next.push(part);
                }
            }
            parts = next;
        }
        parts
    }
}

impl Strided {
    /// The elements of the file from the first to the last.
    pub(crate) fn span(&self) -> Range<usize> {
        let last: usize = (0..self.sizes.len()).map(|d| self.reach(d)).sum();
        self.file.0..self.file.0 + last + 1
    }

    /// The distance in the file from the first to the last element of a dim.
    fn reach(&self, d: usize) -> usize {
        (self.sizes[d] - 1) * self.file.1[d]
    }

    /// Halves until each spans few enough elements.
    fn within(self, most: usize) -> Vec<Strided> {
        let longest = (0..self.sizes.len()).filter(|&d| self.sizes[d] > 1).max_by_key(|&d| self.reach(d));
        let Some(d) = longest.filter(|_| self.span().len() > most) else { return vec![self] };
        let (mut low, mut high) = (self.clone(), self);
        low.sizes[d] /= 2;
        high.sizes[d] -= low.sizes[d];
        high.file.0 += low.sizes[d] * high.file.1[d];
        high.own.0 += low.sizes[d] * high.own.1[d];
        [low, high].into_iter().flat_map(|half| half.within(most)).collect()
    }

    /// Calls `f` with the place in the tensor and the place in the box of each element.
    pub(crate) fn walk(&self, f: &mut impl FnMut(usize, usize)) {
        let dims = 0..self.sizes.len();
        let long: Vec<usize> = dims.clone().filter(|&d| self.sizes[d] > 1).collect();
        let Some(&own) = long.last() else { return f(self.file.0, self.own.0) };
        let file = long.into_iter().min_by_key(|&d| self.file.1[d]).unwrap_or(own);
        let outer: Vec<usize> = dims.filter(|&d| d != own && d != file).collect();
        let mut index = vec![0; outer.len()];
        loop {
            let [from, to] = [&self.file, &self.own]
                .map(|(first, steps)| outer.iter().zip(&index).fold(*first, |place, (&d, &i)| place + i * steps[d]));
            self.walk_plane(Plane { dims: [file, own], from, to }, f);
            let Some(last) = (0..outer.len()).rev().find(|&at| index[at] + 1 < self.sizes[outer[at]]) else { return };
            index[last] += 1;
            index[last + 1..].fill(0);
        }
    }

    /// The elements along one or two dims: the one with the shortest steps in the file, and that in the box.
    fn walk_plane(&self, plane: Plane, f: &mut impl FnMut(usize, usize)) {
        let Plane { dims: [p, q], from, to } = plane;
        let (file, own) = (&self.file.1, &self.own.1);
        if p == q {
            return (0..self.sizes[p]).for_each(|i| f(from + i * file[p], to + i * own[p]));
        }
        for i0 in (0..self.sizes[p]).step_by(TILE) {
            for j0 in (0..self.sizes[q]).step_by(TILE) {
                for i in i0..self.sizes[p].min(i0 + TILE) {
                    for j in j0..self.sizes[q].min(j0 + TILE) {
                        f(from + i * file[p] + j * file[q], to + i * own[p] + j * own[q]);
                    }
                }
            }
        }
    }
}

/// Elements of a box along two dims, which may be the same.
struct Plane {
    dims: [usize; 2],
    /// The first place in the file.
    from: usize,
    /// The first place in the box.
    to: usize,
}

/// The distances of neighbours in row-major elements.
fn strides(shape: &[u64]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as usize;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in the tensor of all elements of a box, in order.
    fn places(piece: &Piece, offset: &[u64], shape: &[u64]) -> Vec<usize> {
        let shard = Shard { offset: offset.to_vec(), shape: shape.to_vec() };
        let mut places = vec![usize::MAX; shard.elements() as usize];
        piece.walk(&shard, |file, own| places[own] = file);
        places
    }

    fn piece(first: usize, dims: &[(u64, Stride)]) -> Piece {
        Piece { tensor: "w".into(), shape: Vec::new(), first, dims: dims.to_vec() }
    }

    #[test]
    fn a_box_of_a_transposed_matrix() {
        let transposed = piece(0, &[(3, Stride::Even(1)), (50, Stride::Even(3))]);
        let all: Vec<usize> = (0..3).flat_map(|row| (0..50).map(move |column| column * 3 + row)).collect();
        assert_eq!(places(&transposed, &[0, 0], &[3, 50]), all);
        assert_eq!(places(&transposed, &[1, 40], &[2, 3]), [121, 124, 127, 122, 125, 128]);
        assert_eq!(places(&piece(7, &[]), &[], &[]), [7]);
    }

    #[test]
    fn pairs_are_parted_wherever_a_box_begins() {
        let pairs = piece(100, &[(2, Stride::Even(10)), (6, Stride::Paired { step: 1, turned: 6 })]);
        let row = [0, 2, 4, 1, 3, 5];
        let all: Vec<usize> = [100, 110].iter().flat_map(|first| row.map(|at| first + at)).collect();
        assert_eq!(places(&pairs, &[0, 0], &[2, 6]), all);
        for (from, count) in (0..6).flat_map(|from| (0..=6 - from).map(move |count| (from, count))) {
            let want: Vec<usize> = (from..from + count).map(|at| 110 + row[at]).collect();
            assert_eq!(places(&pairs, &[1, from as u64], &[1, count as u64]), want, "{from} {count}");
        }
        let some = piece(0, &[(6, Stride::Paired { step: 1, turned: 4 })]);
        assert_eq!(places(&some, &[0], &[6]), [0, 2, 1, 3, 4, 5]);
        assert_eq!(places(&some, &[3], &[3]), [3, 4, 5]);
        assert_eq!(places(&some, &[5], &[1]), [5]);
    }

    #[test]
    fn parts_are_apart() {
        let parted = piece(2, &[(6, Stride::Parted { step: 1, size: 2, distance: 10 })]);
        assert_eq!(places(&parted, &[0], &[6]), [2, 3, 12, 13, 22, 23]);
        assert_eq!(places(&parted, &[1], &[4]), [3, 12, 13, 22]);
        assert_eq!(places(&parted, &[3], &[1]), [13]);
    }

    #[test]
    fn near_parts_are_the_whole_box() {
        let pairs =
            piece(5, &[(3, Stride::Even(1)), (6, Stride::Paired { step: 30, turned: 4 }), (10, Stride::Even(3))]);
        let shard = Shard { offset: vec![0, 1, 2], shape: vec![3, 4, 8] };
        let mut whole = places(&pairs, &shard.offset, &shard.shape);
        for most in [1, 7, 40, 1000] {
            let mut found = vec![usize::MAX; whole.len()];
            for part in pairs.near(&shard, most) {
                let span = part.span();
                assert!(span.len() <= most, "{span:?}");
                part.walk(&mut |file, own| {
                    assert!(span.contains(&file));
                    found[own] = file;
                });
            }
            assert_eq!(found, whole, "{most}");
        }
        whole.sort_unstable();
        whole.dedup();
        assert_eq!(whole.len() as u64, shard.elements());
    }

    #[test]
    fn a_box_of_experts_meets_their_pieces() {
        let one = |number: usize| Piece {
            tensor: format!("experts.{number}"),
            shape: vec![2, 2],
            first: 0,
            dims: vec![(2, Stride::Even(1)), (2, Stride::Even(2))],
        };
        let source = Source { sizes: vec![3, 2, 2], pieces: (0..3).map(one).collect(), is_split: true, shift: 0.0 };
        let shard = Shard { offset: vec![1, 0, 1], shape: vec![2, 2, 1] };
        let parts = source.parts(&shard);
        let found: Vec<_> = parts.iter().map(|part| (part.piece.tensor.as_str(), part.at)).collect();
        assert_eq!(found, [("experts.1", 0), ("experts.2", 2)]);
        assert_eq!(source.shard_of(2), Shard { offset: vec![2, 0, 0], shape: vec![1, 2, 2] });
    }
}
