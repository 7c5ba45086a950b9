//! Dims of the model, inferred: an axis of a recorded tensor is a list of atoms.
//!
//! Views split and join axes. Where two axes meet, in a sum or a product, their atoms are the same. So a projection's result of 32
//! columns, which a view makes 4 heads of 8, has two atoms, and so has the axis of its matrix.
use crate::refusal::{Refusal, contradiction};

/// An atom, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Atom(u32);

/// An axis: its atoms, the slowest first.
pub(crate) type Axis = Vec<Atom>;

struct Entry {
    size: u64,
    /// The atom that it is the same as.
    same: Option<Atom>,
    /// The atoms that it splits into.
    parts: Vec<Atom>,
    /// Elements that are all the same: the axis repeats what has fewer dims.
    is_spread: bool,
    /// Sequences or tokens, which no view parts.
    is_whole: bool,
}

/// All atoms.
#[derive(Default)]
pub(crate) struct Atoms(Vec<Entry>);

impl Atoms {
    /// A new atom.
    pub(crate) fn add(&mut self, size: u64) -> Atom {
        self.0.push(Entry { size, same: None, parts: Vec::new(), is_spread: false, is_whole: false });
        Atom(self.0.len() as u32 - 1)
    }

    /// A new atom that cannot be split.
    pub(crate) fn add_whole(&mut self, size: u64) -> Atom {
        let atom = self.add(size);
        self.0[atom.0 as usize].is_whole = true;
        atom
    }

    /// A new atom along which nothing changes.
    pub(crate) fn add_spread(&mut self, size: u64) -> Atom {
        let atom = self.add(size);
        self.0[atom.0 as usize].is_spread = true;
        atom
    }

    fn root(&self, mut atom: Atom) -> Atom {
        while let Some(same) = self.0[atom.0 as usize].same {
            atom = same;
        }
        atom
    }

    pub(crate) fn size(&self, atom: Atom) -> u64 {
        self.0[self.root(atom).0 as usize].size
    }

    pub(crate) fn is_spread(&self, atom: Atom) -> bool {
        self.0[self.root(atom).0 as usize].is_spread
    }

    fn is_whole(&self, atom: Atom) -> bool {
        self.0[self.root(atom).0 as usize].is_whole
    }

    /// The size of an axis.
    pub(crate) fn total(&self, axis: &[Atom]) -> u64 {
        axis.iter().fold(1, |all: u64, &atom| all.saturating_mul(self.size(atom)))
    }

    /// The smallest parts of atoms, in order.
    pub(crate) fn leaves(&self, axis: &[Atom]) -> Vec<Atom> {
        let mut leaves = Vec::new();
        for &atom in axis {
            let root = self.root(atom);
            match self.0[root.0 as usize].parts.as_slice() {
                [] => leaves.push(root),
                parts => leaves.extend(self.leaves(parts)),
            }
        }
        leaves
    }

    /// Splits a leaf.
    ///
    /// # Errors
    /// It is the batch or the sequence.
    pub(crate) fn split(&mut self, atom: Atom, sizes: &[u64]) -> Result<Vec<Atom>, Refusal> {
        let root = self.root(atom);
        if self.is_whole(root) {
            return Err("the batch or the sequence is parted".into());
        }
        let is_spread = self.is_spread(root);
        let parts: Vec<Atom> =
            sizes.iter().map(|&size| if is_spread { self.add_spread(size) } else { self.add(size) }).collect();
        self.0[root.0 as usize].parts.clone_from(&parts);
        Ok(parts)
    }

    /// Makes two leaves the same.
    fn join(&mut self, a: Atom, b: Atom) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.0[a.0 as usize].is_whole |= self.0[b.0 as usize].is_whole;
            self.0[b.0 as usize].same = Some(a);
        }
    }

    /// Makes two axes the same, and splits atoms where the other has several.
    ///
    /// # Errors
    /// Their sizes do not go together.
    pub(crate) fn unify(&mut self, a: &[Atom], b: &[Atom]) -> Result<(), Refusal> {
        let (mut left, mut right) = (self.leaves(a), self.leaves(b));
        left.reverse();
        right.reverse();
        while let (Some(&x), Some(&y)) = (left.last(), right.last()) {
            let (m, n) = (self.size(x), self.size(y));
            if x == y || m == n {
                self.join(x, y);
                left.pop();
                right.pop();
            } else if m > n && m.is_multiple_of(n) {
                self.split_at(&mut left, &mut right, [n, m / n])?;
            } else if n > m && n.is_multiple_of(m) {
                self.split_at(&mut right, &mut left, [m, n / m])?;
            } else {
                return Err(contradiction(format!("dims of {m} and {n} elements do not go together")));
            }
        }
        match left.iter().chain(&right).find(|&&atom| self.size(atom) != 1) {
            None => Ok(()),
            Some(_) => Err(contradiction("axes of different sizes meet")),
        }
    }

    /// Splits the last of a list; another list may have it, too.
    fn split_at(&mut self, list: &mut Vec<Atom>, other: &mut Vec<Atom>, sizes: [u64; 2]) -> Result<(), Refusal> {
        let Some(atom) = list.pop() else { return Ok(()) };
        let parts = self.split(atom, &sizes)?;
        list.extend(parts.iter().rev());
        if other.contains(&atom) {
            let replaced = other
                .iter()
                .flat_map(|&own| if own == atom { parts.iter().rev().copied().collect() } else { vec![own] });
            *other = replaced.collect();
        }
        Ok(())
    }

    /// Groups the atoms of axes into axes of other sizes. In a `product` a new axis of one element is an atom of its own: the only head of
    /// keys is a dim as several heads are.
    ///
    /// # Errors
    /// A new axis has parts of atoms that cannot be split.
    pub(crate) fn view(&mut self, axes: &[Axis], sizes: &[u64], is_product: bool) -> Result<Vec<Axis>, Refusal> {
        let mut rest: Vec<Atom> = self.leaves(&axes.concat());
        rest.reverse();
        let mut viewed = Vec::new();
        for (at, &size) in sizes.iter().enumerate() {
            let (mut axis, mut count) = (Vec::new(), 1);
            if size == 1
                && let Some(&next) = rest.last()
            {
                if is_product && self.size(next) > 1 && !self.is_whole(next) {
                    let parts = self.split(next, &[1, self.size(next)])?;
                    rest.pop();
                    rest.extend([parts[1], parts[0]]);
                }
                axis.extend(rest.pop_if(|atom| self.size(*atom) == 1));
            }
            while count < size {
                let atom = rest.pop().ok_or(contradiction("a view has more elements than its operand"))?;
                let (own, wanted) = (self.size(atom), size / count);
                if own == 0 {
                    return Err(contradiction("a dim has no elements"));
                }
                if own <= wanted {
                    count *= own;
                    axis.push(atom);
                    continue;
                }
                if !own.is_multiple_of(wanted) || !size.is_multiple_of(count) {
                    return Err(format!("a view parts a dim of {own} elements into {wanted}").into());
                }
                let parts = self.split(atom, &[wanted, own / wanted])?;
                axis.push(parts[0]);
                rest.push(parts[1]);
                count *= wanted;
            }
            // An atom of one element goes with what is before it, unless that is the batch or the sequence.
            let is_whole = axis.last().is_some_and(|&atom| self.is_whole(atom));
            while !is_whole && sizes.get(at + 1) != Some(&1) && rest.last().is_some_and(|&atom| self.size(atom) == 1) {
                axis.extend(rest.pop());
            }
            if count != size {
                return Err(format!("a view makes a dim of {size} elements of parts that do not fit").into());
            }
            viewed.push(axis);
        }
        if self.total(&rest) != 1 {
            return Err(contradiction("a view has fewer elements than its operand"));
        }
        if let Some(last) = viewed.last_mut() {
            last.extend(rest.drain(..).rev());
        }
        Ok(viewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_splits_the_axis_of_a_matrix() {
        let mut atoms = Atoms::default();
        let (b, columns) = (atoms.add(3), atoms.add(32));
        let heads = atoms.view(&[vec![b], vec![columns]], &[3, 4, 8], false).unwrap();
        assert_eq!(atoms.leaves(&[columns]), [heads[1][0], heads[2][0]]);
        let joined = atoms.view(&heads, &[12, 8], false).unwrap();
        assert_eq!(atoms.total(&joined[0]), 12);
        assert!(atoms.view(&[vec![columns]], &[3, 5], false).is_err());
    }

    #[test]
    fn one_head_is_a_dim() {
        let mut atoms = Atoms::default();
        let (b, s, columns) = (atoms.add_whole(3), atoms.add_whole(5), atoms.add(8));
        let heads = atoms.view(&[vec![b], vec![s], vec![columns]], &[3, 5, 1, 8], true).unwrap();
        assert_eq!(atoms.leaves(&[columns]), [heads[2][0], heads[3][0]]);
        let joined = atoms.view(&heads, &[3, 5, 8], false).unwrap();
        assert_eq!((joined[1].len(), joined[2].len()), (1, 2));
    }

    #[test]
    fn axes_that_meet_have_the_same_atoms() {
        let mut atoms = Atoms::default();
        let (g, r, d) = (atoms.add(2), atoms.add(1), atoms.add(8));
        let inputs = atoms.add(16);
        atoms.unify(&[g, r, d], &[inputs]).unwrap();
        assert_eq!(atoms.leaves(&[inputs]), atoms.leaves(&[g, r, d]));
        let other = atoms.add(9);
        assert!(atoms.unify(&[d], &[other]).is_err());
    }
}
