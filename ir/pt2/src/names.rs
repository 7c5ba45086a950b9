//! Names and roles of dims, by what the statements do with them.

use crate::atoms::{Atom, Atoms};
use crate::error::Error;
use crate::lower::Lowering;
use crate::program::{Action, Argument, LoweredModel, Statement, Var};
use ir::dim_role::DimRole;
use ir::types::DimName;
use std::collections::{BTreeMap, BTreeSet};

/// A dim of the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Label {
    Named(&'static str, u32),
    /// A dim that only a parameter has.
    Sized(u64),
    /// The tokens of a sequence in routing groups.
    Grouped,
    /// The experts of a token.
    Chosen(u64),
    /// The rows of all experts.
    Rows,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Named(name, 1) => f.write_str(name),
            Label::Named(name, number) => write!(f, "{name}{number}"),
            Label::Sized(size) | Label::Chosen(size) => write!(f, "{size}"),
            Label::Grouped => f.write_str("q t"),
            Label::Rows => f.write_str("b q e c"),
        }
    }
}

/// The names of all dims.
pub(crate) struct Names {
    labels: BTreeMap<Atom, Label>,
    /// The dims that each dim stands next to in a statement: they have other names.
    neighbours: BTreeMap<Atom, BTreeSet<Atom>>,
    /// Dims with names, in the order of their declaration.
    dims: Vec<(&'static str, u32, u64)>,
    /// Dims of tokens that the batch sizes, but the first.
    pub(crate) open: Vec<String>,
}

/// Names with the roles that they have, in the order of their declaration.
const KINDS: [(&str, Option<DimRole>); 13] = [
    ("s", None),
    ("h", None),
    ("g", Some(DimRole::KvHeads)),
    ("r", Some(DimRole::QueryHeads)),
    ("d", None),
    ("p", None),
    ("dv", None),
    ("f", Some(DimRole::FeedForward)),
    ("v", Some(DimRole::Vocabulary)),
    ("e", Some(DimRole::Experts)),
    ("n", Some(DimRole::RouterLogits)),
    ("m", Some(DimRole::ExpertFeedForward)),
    ("u", Some(DimRole::SharedFeedForward)),
];

impl Names {
    /// Names the dims of a program.
    ///
    /// # Errors
    /// A statement has other dims than its op.
    pub(crate) fn of(
        program: &LoweredModel,
        atoms: &Atoms,
        lowering: &Lowering<'_>,
        logits: Var,
        refuse: &dyn Fn(usize, &str) -> Error,
    ) -> Result<Names, Error> {
        let mut names = Names {
            labels: BTreeMap::new(),
            neighbours: neighbours(program, atoms),
            dims: Vec::new(),
            open: Vec::new(),
        };
        let (batch, sequence) = (lowering.batch, lowering.sequence);
        names.labels.extend([(batch, Label::Named("b", 1)), (sequence, Label::Named("s", 1))]);
        for (length, number) in lowering.lengths.iter().zip(2..) {
            names.labels.insert(length.atom, Label::Named("s", number));
            names.dims.push(("s", number, atoms.size(length.atom)));
            names.open.extend(length.is_open.then(|| Label::Named("s", number).to_string()));
        }
        for statement in &program.statements {
            let own = program.dims(atoms, statement.result);
            match (&statement.action, statement.operands.as_slice()) {
                (Action::Embedding { .. }, &[ids, Argument::Weight(table)]) => {
                    own.last().into_iter().for_each(|&width| names.name(atoms, width, "h"));
                    if ids != Argument::Positions {
                        let rows = program.weights[table].view.dims[0].0;
                        atoms.leaves(&[rows]).iter().for_each(|&row| names.name(atoms, row, "v"));
                    }
                }
                (Action::Attention(_), &[Argument::Var(q), Argument::Var(k), Argument::Var(v), ..]) => {
                    let (q, k, v) = (program.dims(atoms, q), program.dims(atoms, k), program.dims(atoms, v));
                    let (&[b, s, g, r, d], &[kb, t, kg, kd], &[vb, u, vg, c]) =
                        (q.as_slice(), k.as_slice(), v.as_slice())
                    else {
                        return Err(refuse(statement.node, "attention of other dims than heads and elements"));
                    };
                    if [b, kb, vb, kg, vg, kd, u] != [batch, batch, batch, g, g, d, t] || [s, t].contains(&batch) {
                        return Err(refuse(
                            statement.node,
                            "the dims of queries, keys and values are in another order",
                        ));
                    }
                    [(g, "g"), (r, "r"), (d, "d")].into_iter().for_each(|(atom, name)| names.name(atoms, atom, name));
                    names.name(atoms, c, if atoms.size(c) == atoms.size(d) { "d" } else { "dv" });
                }
                _ => {}
            }
        }
        program.dims(atoms, logits).last().into_iter().for_each(|&atom| names.name(atoms, atom, "v"));
        names.experts(program, atoms);
        for statement in &program.statements {
            for atom in program.dims(atoms, statement.result) {
                let kind = if names.is_next_to_role(atom) { "p" } else { "f" };
                names.name(atoms, atom, kind);
            }
        }
        Ok(names)
    }

    /// True for a dim that stands next to one that axes shard: it has no role of its own, since an axis shards one dim of a tensor.
    fn is_next_to_role(&self, atom: Atom) -> bool {
        let labels = self.neighbours.get(&atom).into_iter().flatten().filter_map(|other| self.labels.get(other));
        let mut names = labels.filter_map(|label| if let Label::Named(name, _) = label { Some(*name) } else { None });
        names.any(|name| KINDS.iter().any(|(kind, role)| *kind == name && role.is_some()))
    }

    /// Names the dims of routers, of experts, and of nets that read what a router reads.
    fn experts(&mut self, program: &LoweredModel, atoms: &Atoms) {
        let rows = &program.routing.rows;
        self.labels.extend(rows.iter().map(|&rows| (rows, Label::Rows)));
        self.labels.extend(program.routing.chosen.iter().map(|&chosen| (chosen, Label::Chosen(atoms.size(chosen)))));
        let mut routed = BTreeSet::new();
        for statement in &program.statements {
            match (&statement.action, statement.operands.as_slice()) {
                (Action::Group, &[Argument::Var(x)]) => drop(routed.insert(x)),
                (Action::TopK { .. }, &[Argument::Var(scores)]) => {
                    program.dims(atoms, scores).into_iter().for_each(|atom| self.name(atoms, atom, "n"));
                }
                (Action::Product, &[Argument::Var(x), Argument::Weight(weight)])
                    if program.dims(atoms, x).iter().any(|atom| rows.contains(atom)) =>
                {
                    let experts = program.weights[weight].view.dims.first().map(|&(experts, _)| experts);
                    atoms.leaves(experts.as_slice()).into_iter().for_each(|atom| self.name(atoms, atom, "e"));
                    program.dims(atoms, statement.result).into_iter().for_each(|atom| self.name(atoms, atom, "m"));
                }
                _ => {}
            }
        }
        for statement in program.statements.iter().filter(|statement: &&Statement| {
            statement.action == Action::Product && statement.reads().any(|var| routed.contains(&var))
        }) {
            program.dims(atoms, statement.result).into_iter().for_each(|atom| self.name(atoms, atom, "u"));
        }
    }

    /// Names an atom that has no name. Atoms of one kind and size are one dim.
    fn name(&mut self, atoms: &Atoms, atom: Atom, name: &'static str) {
        if self.labels.contains_key(&atom) {
            return;
        }
        let size = atoms.size(atom);
        let of_kind: Vec<(u32, u64)> =
            self.dims.iter().filter(|(kind, ..)| *kind == name).map(|&(_, number, size)| (number, size)).collect();
        let taken: Vec<&Label> =
            self.neighbours.get(&atom).into_iter().flatten().filter_map(|other| self.labels.get(other)).collect();
        let is_free = |number: u32| !taken.contains(&&Label::Named(name, number));
        let known =
            of_kind.iter().find(|(number, other)| *other == size && is_free(*number)).map(|(number, _)| *number);
        let number = known.unwrap_or(of_kind.len() as u32 + 1);
        if known.is_none() {
            self.dims.push((name, number, size));
        }
        self.labels.insert(atom, Label::Named(name, number));
    }

    /// The label of a leaf.
    pub(crate) fn label(&self, atoms: &Atoms, atom: Atom) -> Label {
        self.labels.get(&atom).cloned().unwrap_or_else(|| Label::Sized(atoms.size(atom)))
    }

    /// The dims to declare. Shards have whole heads and experts.
    pub(crate) fn declared(&self) -> Vec<DimName> {
        KINDS
            .iter()
            .flat_map(|&(kind, role): &(&'static str, Option<DimRole>)| {
                self.dims.iter().filter(move |(name, ..)| *name == kind).map(move |&(name, number, size)| {
                    let dim = DimName::new(&Label::Named(name, number).to_string(), size, role);
                    if matches!(kind, "g" | "r" | "e") { dim.undivided() } else { dim }
                })
            })
            .collect()
    }
}

/// The dims that meet in one tensor, or in the equation of a statement.
fn neighbours(program: &LoweredModel, atoms: &Atoms) -> BTreeMap<Atom, BTreeSet<Atom>> {
    let mut neighbours: BTreeMap<Atom, BTreeSet<Atom>> = BTreeMap::new();
    let mut meet = |all: &[Atom]| {
        for atom in all {
            neighbours.entry(*atom).or_default().extend(all.iter().filter(|other| *other != atom));
        }
    };
    program.vars.iter().for_each(|dims| meet(&atoms.leaves(dims)));
    for statement in &program.statements {
        let weights: Vec<Atom> = statement
            .operands
            .iter()
            .flat_map(|operand: &Argument| match operand {
                Argument::Weight(weight) => {
                    let dims = program.weights[*weight].view.dims.iter();
                    dims.flat_map(|&(atom, _)| atoms.leaves(&[atom])).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        meet(&weights);
        if matches!(statement.action, Action::Product | Action::Binary(_)) {
            let vars = statement.reads().chain(statement.results());
            let all: Vec<Atom> = vars.flat_map(|var| atoms.leaves(&program.vars[var.0])).chain(weights).collect();
            meet(&all);
        }
    }
    neighbours
}
