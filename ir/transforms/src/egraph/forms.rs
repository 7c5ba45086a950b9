//! Forms: the statements that the nodes of a class can become.

use super::encode::Encoded;
use super::facts::Graph;
use super::language::{Made, Node, NodeKind, Number, Spread};
use super::plain::PlainOp;
use egg::Id;
use ir::graph::Stmt;
use ir::ops::{Equation, OpClass};
use ir::types::DType;
use std::collections::HashMap;

/// The ops without attributes that recognisers make.
const RECOGNISED: [PlainOp; 6] =
    [PlainOp::Sigmoid, PlainOp::Silu, PlainOp::Gelu, PlainOp::GeluErf, PlainOp::ReluSquared, PlainOp::Softmax];

/// Costs of statements: one that multiplies matrices costs as much as several that pass over memory, and a view least. A
/// concatenation costs the products that one on its result saves: planners shard the parts, each by its own dims.
const PRODUCT: usize = 128;
const PASS: usize = 16;
const VIEW: usize = 1;

/// A statement that a node can become.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Form {
    /// The node's operator.
    pub(crate) kind: NodeKind,
    /// The constant that takes the place of an operand.
    pub(crate) number: Option<Number>,
    /// Per operand of an elementwise op, how its equation repeats it.
    pub(crate) spreads: Vec<Option<Spread>>,
    /// The classes of the operands.
    pub(crate) operands: Vec<Id>,
}

impl Form {
    fn plain(node: &Node, graph: &Graph) -> Form {
        let operands = node.operands.iter().map(|&operand| graph.find(operand)).collect();
        Form { kind: node.kind.clone(), number: None, spreads: Vec::new(), operands }
    }

    /// True for the ops that a recogniser makes.
    pub(crate) fn is_recognised(&self) -> bool {
        match self.kind {
            NodeKind::Made(_) => true,
            NodeKind::Plain(op) => RECOGNISED.contains(&op),
            _ => false,
        }
    }

    /// The name of the op that a recogniser makes.
    pub(crate) fn name(&self) -> &'static str {
        Node { kind: self.kind.clone(), operands: Vec::new() }.name()
    }

    /// The cost of its statements.
    pub(crate) fn cost(&self) -> usize {
        match &self.kind {
            NodeKind::Einsum(_) | NodeKind::Made(Made::Attention { .. }) => PRODUCT,
            NodeKind::Reshape(_) | NodeKind::Out(..) => VIEW,
            NodeKind::Full(number, _) => {
                if number.get() == 0.0 {
                    2 * PASS
                } else {
                    3 * PASS
                }
            }
            NodeKind::Concat(_) => concatenation(self.operands.len()),
            NodeKind::Spread(_) if self.operands.is_empty() => PASS,
            NodeKind::Spread(spread) => {
                let permutes = if spread.places.is_sorted() { 0 } else { PASS };
                let new = (0..spread.sizes.len()).filter(|place| !spread.places.contains(place));
                let adds = match new.map(|place| spread.sizes[place]).max() {
                    None => 0,
                    Some(1) => VIEW,
                    Some(_) => PASS,
                };
                // Two statements: the first may be found elsewhere if it is one by itself.
                let both = if permutes > 0 && adds > 0 { VIEW } else { 0 };
                permutes + adds + both
            }
            _ => PASS,
        }
    }
}

fn concatenation(parts: usize) -> usize {
    PASS + parts.saturating_sub(1) * PRODUCT
}

/// The cost of a statement of the section.
pub(crate) fn cost(stmt: &Stmt) -> usize {
    let equation = stmt.op.extras().contraction.map(|op| op.equation());
    let sums = |equation: &Equation| equation.operands.iter().flatten().any(|label| !equation.result.contains(label));
    let facts = stmt.op.facts();
    match facts.class {
        OpClass::Product if !equation.is_some_and(sums) => PASS,
        OpClass::Product | OpClass::Attention => PRODUCT,
        _ if facts.is_view => VIEW,
        _ if stmt.op.name() == "concat" => concatenation(stmt.operands.len()),
        // An embedding costs less: later passes know that it reads parameters by ids.
        _ if stmt.op.name() == "take" => PASS + VIEW,
        _ => PASS,
    }
}

/// The forms of all classes, and the cheapest of those that no value holds.
pub(crate) struct Forms {
    forms: HashMap<Id, Vec<Form>>,
    /// The cost of a class if nothing is shared.
    trees: HashMap<Id, usize>,
    cheapest: HashMap<Id, (usize, Form)>,
}

impl Forms {
    /// Lists the forms of a saturated graph. Broadcasts that are statements join equations only if that is wanted.
    pub(crate) fn new(encoded: &Encoded, stmts: &[Stmt], joins_broadcasts: bool) -> Forms {
        let graph = &encoded.graph;
        let mut classes: Vec<Id> = graph.classes().map(|class| class.id).collect();
        classes.sort_unstable();
        let joins = |class: Id| joins_broadcasts || !encoded.has_value(class);
        let is_made = |node: &&Node, class| !matches!(node.kind, NodeKind::Full(..)) || !encoded.has_value(class);
        let of_class = |class: Id| {
            let nodes = graph[class].iter().filter(|node| is_made(node, class));
            nodes.flat_map(|node| of_node(graph, class, node, &joins)).collect()
        };
        let forms = classes.iter().map(|&class| (class, of_class(class))).collect();
        let mut all = Forms { forms, trees: HashMap::new(), cheapest: HashMap::new() };
        all.grow(encoded, stmts, &classes);
        while classes.iter().filter(|&&class| all.improve(encoded, class)).count() > 0 {}
        all.sort(encoded);
        all
    }

    /// The forms of a class whose operands have a form, best first.
    pub(crate) fn of(&self, class: Id) -> &[Form] {
        self.forms.get(&class).map_or(&[], Vec::as_slice)
    }

    /// The cheapest form of a class that no value holds.
    pub(crate) fn cheapest(&self, class: Id) -> Option<&Form> {
        self.cheapest.get(&class).map(|(_, form)| form)
    }

    /// Finds the cost of each class without sharing.
    fn grow(&mut self, encoded: &Encoded, stmts: &[Stmt], classes: &[Id]) {
        self.trees.extend(classes.iter().filter(|class| encoded.outside(**class).is_some()).map(|&class| (class, 0)));
        let mut has_changed = true;
        while std::mem::take(&mut has_changed) {
            for (place, stmt) in stmts.iter().enumerate() {
                let Some(tree) = self.tree(&encoded.operands[place], cost(stmt)) else { continue };
                for class in stmt.results.iter().filter_map(|value| encoded.of(*value)) {
                    has_changed |= lower(&mut self.trees, class, tree);
                }
            }
            for &class in classes {
                let trees = self.of(class).iter().filter_map(|form| self.tree(&form.operands, form.cost()));
                if let Some(tree) = trees.min() {
                    has_changed |= lower(&mut self.trees, class, tree);
                }
            }
        }
    }

    fn tree(&self, operands: &[Id], own: usize) -> Option<usize> {
        operands.iter().try_fold(own, |sum, operand| Some(sum.saturating_add(*self.trees.get(operand)?)))
    }

    /// Takes a cheaper form for a class that no value holds, if its operands have one by now.
    fn improve(&mut self, encoded: &Encoded, class: Id) -> bool {
        if encoded.has_value(class) {
            return false;
        }
        let costs = self.of(class).iter().filter_map(|form| Some((self.cost(encoded, form)?, form)));
        let key = |(cost, form): &(usize, &Form)| (*cost, self.tree(&form.operands, form.cost()));
        let best = costs.min_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.1.cmp(b.1)));
        let better = best.filter(|(cost, _)| self.cheapest.get(&class).is_none_or(|(known, _)| cost < known));
        let better = better.map(|(cost, form)| (cost, form.clone()));
        better.map(|better| self.cheapest.insert(class, better)).is_some()
    }

    /// The cost of a form and of operands that no value holds, counted once for each use.
    fn cost(&self, encoded: &Encoded, form: &Form) -> Option<usize> {
        let operand = |class: &Id| match encoded.has_value(*class) {
            true => Some(0),
            false => self.cheapest.get(class).map(|(cost, _)| *cost),
        };
        let own = form.cost().max(VIEW);
        form.operands.iter().try_fold(own, |sum, class| Some(sum.saturating_add(operand(class)?)))
    }

    /// Sorts the forms of each class, without those that lack an operand.
    fn sort(&mut self, encoded: &Encoded) {
        let forms = std::mem::take(&mut self.forms);
        let sorted = |(class, forms): (Id, Vec<Form>)| {
            let mut costs: Vec<(usize, Option<usize>, Form)> = forms
                .into_iter()
                .filter_map(|form| Some((self.cost(encoded, &form)?, self.tree(&form.operands, form.cost()), form)))
                .collect();
            costs.sort();
            costs.dedup();
            (class, costs.into_iter().map(|(_, _, form)| form).collect())
        };
        self.forms = forms.into_iter().map(sorted).collect();
    }
}

fn lower(trees: &mut HashMap<Id, usize>, class: Id, tree: usize) -> bool {
    let is_lower = trees.get(&class).is_none_or(|&known| tree < known);
    if is_lower {
        trees.insert(class, tree);
    }
    is_lower
}

/// The forms of a node. `joins` says whether an equation may take the place of a broadcast.
fn of_node(graph: &Graph, class: Id, node: &Node, joins: &dyn Fn(Id) -> bool) -> Vec<Form> {
    let plain = Form::plain(node, graph);
    let is_same = |operand: &Id| graph.find(*operand) == class;
    if node.operands.iter().any(is_same) {
        return Vec::new();
    }
    match &node.kind {
        NodeKind::Leaf(..) => Vec::new(),
        NodeKind::Full(number, shape) => {
            let is_wide = matches!(shape.dtype, DType::F32 | DType::BF16);
            if is_wide && shape.rank() > 0 && number.get().is_finite() { vec![plain] } else { Vec::new() }
        }
        NodeKind::Plain(PlainOp::Add | PlainOp::Mul | PlainOp::Max | PlainOp::Min | PlainOp::Sub | PlainOp::Div) => {
            binary(graph, &plain, joins)
        }
        NodeKind::Spread(spread) if spread.places.len() == 1 && is_count(graph, plain.operands[0]) => {
            vec![Form { operands: Vec::new(), ..plain }]
        }
        _ => vec![plain],
    }
}

/// True if a class is the integers from 0.
fn is_count(graph: &Graph, class: Id) -> bool {
    graph[class].iter().any(|node| matches!(node.kind, NodeKind::Iota(_)))
}

/// The forms of an elementwise op of two operands: with a constant, with equations that repeat operands, and without.
fn binary(graph: &Graph, plain: &Form, joins: &dyn Fn(Id) -> bool) -> Vec<Form> {
    let NodeKind::Plain(op) = plain.kind else { return Vec::new() };
    let number = |place: usize| graph[plain.operands[place]].data.number;
    if let Some((place, number)) = [1, 0].into_iter().find_map(|place| Some((place, number(place)?))) {
        let commutes = ![PlainOp::Sub, PlainOp::Div].contains(&op);
        let with_number = Form { number: Some(number), operands: vec![plain.operands[1 - place]], ..plain.clone() };
        return if commutes { vec![with_number] } else { Vec::new() };
    }
    let options = |&id: &Id| if joins(id) { spreads(graph, id) } else { vec![(None, id)] };
    let options: Vec<Vec<(Option<Spread>, Id)>> = plain.operands.iter().map(options).collect();
    let mut all = Vec::new();
    for (first, a) in &options[0] {
        for (second, b) in &options[1] {
            let spreads = [first, second];
            if spreads.iter().all(|spread| spread.is_none()) {
                all.push(plain.clone());
            } else if covers(spreads) {
                let spreads = spreads.map(Clone::clone).to_vec();
                all.push(Form { spreads, operands: vec![*a, *b], ..plain.clone() });
            }
        }
    }
    all
}

/// An operand as it is, and what it repeats along new dims.
fn spreads(graph: &Graph, id: Id) -> Vec<(Option<Spread>, Id)> {
    let spread = |node: &Node| match &node.kind {
        NodeKind::Spread(spread) if spread.places.is_sorted() && !spread.is_view() => {
            Some((Some(spread.clone()), graph.find(node.operands[0])))
        }
        _ => None,
    };
    let repeated = graph[id].iter().filter_map(spread).filter(|(_, x)| !is_count(graph, *x));
    [(None, id)].into_iter().chain(repeated).collect()
}

/// True if each dim of the result is one of an operand.
fn covers(spreads: [&Option<Spread>; 2]) -> bool {
    let rank = spreads.iter().find_map(|spread| spread.as_ref().map(|spread| spread.sizes.len())).unwrap_or(0);
    let has = |spread: &Option<Spread>, dim: usize| spread.as_ref().is_none_or(|spread| spread.places.contains(&dim));
    (0..rank).all(|dim| spreads.iter().any(|spread| has(spread, dim)))
}
