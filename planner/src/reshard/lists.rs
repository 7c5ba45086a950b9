//! Interned axis sequences: a trie (Fredkin 1960).

use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use rustc_hash::FxHashMap;
use std::ops::Index;
use std::rc::Rc;

/// Id of an axis sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct List(u32);

impl List {
    /// Empty sequence.
    pub(super) const NONE: List = List(0);

    /// Index of the sequence, counted from 0.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Unordered set of axes: a bit per axis, by its number in the mesh.
pub(super) type Set = u64;

/// Largest number of mesh axes that a [`Set`] can represent.
pub(super) const MOST: usize = Set::BITS as usize;

/// Set of these axes.
pub(super) fn set(axes: &Axes) -> Set {
    axes.iter().fold(0, |set, axis| set | bit(axis))
}

/// Axes of a set, in mesh order.
pub(super) fn axes(set: Set) -> Axes {
    (0..MOST as u32).filter(|axis| set >> axis & 1 == 1).map(AxisId::from_u32).collect()
}

/// Nonempty subsets, in ascending numeric order.
pub(super) fn subsets(all: Set) -> impl Iterator<Item = Set> {
    let mut next = 0;
    std::iter::from_fn(move || {
        next = (next | !all).wrapping_add(1) & all;
        (next != 0).then_some(next)
    })
}

fn bit(axis: AxisId) -> Set {
    1 << axis.as_u32()
}

/// Properties of an axis sequence.
pub(super) struct Sequence {
    /// Axes, major to minor.
    pub(super) axes: Axes,
    /// Axes as a set.
    pub(super) set: Set,
    /// Number of shards that the sequence makes.
    pub(super) size: u64,
    shorter: List,
}

/// Interner of the axis sequences of a mesh.
pub(super) struct Lists {
    sizes: Vec<u64>,
    all: Vec<Sequence>,
    /// Per sequence and axis: the sequence extended by that axis, if interned.
    longer: Vec<Option<List>>,
    orders: FxHashMap<Set, Rc<[List]>>,
}

impl Index<List> for Lists {
    type Output = Sequence;

    fn index(&self, list: List) -> &Sequence {
        &self.all[list.index()]
    }
}

impl Lists {
    /// Interner with the empty sequence only.
    pub(super) fn new(mesh: &Mesh) -> Lists {
        let sizes: Vec<u64> = mesh.axes.values().map(|axis| axis.size).collect();
        let none = Sequence { axes: Axes::none(), set: 0, size: 1, shorter: List::NONE };
        Lists { longer: vec![None; sizes.len()], all: vec![none], sizes, orders: FxHashMap::default() }
    }

    /// Number of interned sequences.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Sequence with this index.
    pub(super) fn at(&self, index: usize) -> &Sequence {
        &self.all[index]
    }

    /// Sequences interned after the first `first`.
    pub(super) fn since(&self, first: usize) -> &[Sequence] {
        &self.all[first..]
    }

    /// Id of a sequence; interns the sequence if new.
    pub(super) fn list(&mut self, axes: &Axes) -> List {
        axes.iter().fold(List::NONE, |list, axis| self.longer(list, axis))
    }

    /// Appends to a sequence the axes of another from position `start`.
    pub(super) fn joined(&mut self, mut list: List, other: List, start: usize) -> List {
        for place in start..self[other].axes.len() {
            let axis = self[other].axes.as_slice()[place];
            list = self.longer(list, axis);
        }
        list
    }

    fn longer(&mut self, list: List, axis: AxisId) -> List {
        let place = list.index() * self.sizes.len() + axis.as_u32() as usize;
        if let Some(longer) = self.longer[place] {
            return longer;
        }
        let new = List(self.all.len() as u32);
        let Sequence { axes, set, size, .. } = &self[list];
        let (mut axes, set, size) = (axes.clone(), set | bit(axis), size * self.sizes[axis.as_u32() as usize]);
        axes.push(axis);
        self.all.push(Sequence { axes, set, size, shorter: list });
        self.longer[place] = Some(new);
        self.longer.resize(self.all.len() * self.sizes.len(), None);
        new
    }

    /// First `len` axes of a sequence.
    pub(super) fn prefix(&self, mut list: List, len: usize) -> List {
        for _ in len..self[list].axes.len() {
            list = self[list].shorter;
        }
        list
    }

    /// Axes of both sequences after their common prefix.
    pub(super) fn ends(&self, one: List, other: List) -> Set {
        let (one, other) = (&self[one], &self[other]);
        let both = one.axes.iter().zip(other.axes.iter()).take_while(|(a, b)| a == b);
        (one.set | other.set) & !both.fold(0, |set, (axis, _)| set | bit(axis))
    }

    /// Product of the axis sizes: the number of shards.
    pub(super) fn size(&self, set: Set) -> u64 {
        let sizes = self.sizes.iter().enumerate();
        sizes.filter(|(axis, _)| set >> axis & 1 == 1).map(|(_, size)| size).product()
    }

    /// All ordered selections from a set, shorter ones first.
    pub(super) fn orders(&mut self, set: Set) -> Rc<[List]> {
        if let Some(known) = self.orders.get(&set) {
            return Rc::clone(known);
        }
        let (mut all, mut next) = (vec![List::NONE], 0);
        while let Some(&list) = all.get(next) {
            let rest = axes(set & !self[list].set);
            all.extend(rest.iter().map(|axis| self.longer(list, axis)));
            next += 1;
        }
        let orders: Rc<[List]> = all.split_off(1).into();
        self.orders.insert(set, Rc::clone(&orders));
        orders
    }
}
