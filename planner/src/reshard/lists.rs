//! Sequences of axes, each made once and known by its number: a trie (Fredkin 1960).

use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use rustc_hash::FxHashMap;
use std::ops::Index;
use std::rc::Rc;

/// The number of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct List(u32);

impl List {
    /// The empty one.
    pub(super) const NONE: List = List(0);

    /// The sequences are numbered from 0 on.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some axes in no order: a bit for each, by its number in the mesh.
pub(super) type Set = u64;

/// The most axes of a mesh that a [`Set`] can tell apart.
pub(super) const MOST: usize = Set::BITS as usize;

/// The set of the axes.
pub(super) fn set(axes: &Axes) -> Set {
    axes.iter().fold(0, |set, axis| set | bit(axis))
}

/// The axes of a set, in mesh order.
pub(super) fn axes(set: Set) -> Axes {
    (0..MOST as u32).filter(|axis| set >> axis & 1 == 1).map(AxisId::from_u32).collect()
}

/// The sets of some of the axes, as numbers ascending.
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

/// What is known of a sequence.
pub(super) struct Sequence {
    /// Its axes, major to minor.
    pub(super) axes: Axes,
    /// The same in no order.
    pub(super) set: Set,
    /// Into how many shards it cuts.
    pub(super) size: u64,
    shorter: List,
}

/// All sequences of the axes of a mesh that have been asked for.
pub(super) struct Lists {
    sizes: Vec<u64>,
    all: Vec<Sequence>,
    /// Per sequence and axis: the one with that axis more, if it has been asked for.
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
    /// The empty one alone.
    pub(super) fn new(mesh: &Mesh) -> Lists {
        let sizes: Vec<u64> = mesh.axes.values().map(|axis| axis.size).collect();
        let none = Sequence { axes: Axes::none(), set: 0, size: 1, shorter: List::NONE };
        Lists { longer: vec![None; sizes.len()], all: vec![none], sizes, orders: FxHashMap::default() }
    }

    /// How many there are by now.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one of a number.
    pub(super) fn at(&self, index: usize) -> &Sequence {
        &self.all[index]
    }

    /// Those that have come after the first so many.
    pub(super) fn since(&self, first: usize) -> &[Sequence] {
        &self.all[first..]
    }

    /// The number of a sequence.
    pub(super) fn list(&mut self, axes: &Axes) -> List {
        axes.iter().fold(List::NONE, |list, axis| self.longer(list, axis))
    }

    /// A sequence, and after it the axes of another from a place on.
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

    /// The first axes of a sequence.
    pub(super) fn prefix(&self, mut list: List, len: usize) -> List {
        for _ in len..self[list].axes.len() {
            list = self[list].shorter;
        }
        list
    }

    /// The axes of both behind those with which both start.
    pub(super) fn ends(&self, one: List, other: List) -> Set {
        let (one, other) = (&self[one], &self[other]);
        let both = one.axes.iter().zip(other.axes.iter()).take_while(|(a, b)| a == b);
        (one.set | other.set) & !both.fold(0, |set, (axis, _)| set | bit(axis))
    }

    /// Into how many shards the axes cut.
    pub(super) fn size(&self, set: Set) -> u64 {
        let sizes = self.sizes.iter().enumerate();
        sizes.filter(|(axis, _)| set >> axis & 1 == 1).map(|(_, size)| size).product()
    }

    /// The choices of some of the axes in all orders, shorter ones first.
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
