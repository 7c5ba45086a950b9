//! Communication between ranks: `peer`, `unmatched-message`, `message-order`, `message-type`, `collective-order`, `deadlock`.

use super::{Violation, class_of, pipeline_ranks};
use crate::entity::EntityRef;
use crate::expr::Expr;
use crate::graph::Model;
use crate::ids::Token;
use crate::program::{Instr, Program, Transfer};
use crate::types::Type;
use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, HashMap};

/// A position in the row of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RowPosition {
    pub(super) rank: u32,
    pub(super) position: usize,
}

/// An order in which all instructions of all ranks can run, and the peers of each transfer.
#[derive(Default)]
pub(super) struct Order {
    pub(super) sequence: Vec<RowPosition>,
    /// The start of the send of each start of a receive.
    pub(super) sends: HashMap<RowPosition, RowPosition>,
    /// The starts of all members of each start of a sum.
    pub(super) members: HashMap<RowPosition, Vec<RowPosition>>,
}

struct Half<'a> {
    at: RowPosition,
    tag: u32,
    ty: Option<&'a Type>,
}

/// The start of a sum, and its operand.
type Sum = (RowPosition, String);

/// The messages from one rank to another, in the order of one of them.
type Messages<'a> = BTreeMap<(u32, u32), Vec<Half<'a>>>;

#[derive(Default)]
struct Posts<'a> {
    sends: Messages<'a>,
    receives: Messages<'a>,
    /// Per group and member, the sums in order.
    sums: BTreeMap<Vec<u32>, BTreeMap<u32, Vec<Sum>>>,
    waits: HashMap<(u32, Token), RowPosition>,
    starts: HashMap<RowPosition, Token>,
}

pub(super) fn check(model: &Model, program: &Program, found: &mut Vec<Violation>) -> Option<Order> {
    let ranks = pipeline_ranks(model);
    let mut posts = Posts::default();
    for rank in 0..ranks {
        collect(model, program, rank, &mut posts, found);
    }
    let mut order = Order::default();
    match_messages(program, &posts, &mut order, found);
    match_sums(program, &posts, &mut order, found);
    if !found.is_empty() {
        return None;
    }
    order.sequence = sort(program, ranks, &posts, &order, found)?;
    Some(order)
}

fn violation(program: &Program, name: &'static str, at: RowPosition, text: String) -> Violation {
    let class = class_of(program, at.rank).map_or(0, |(index, _)| index);
    Violation::in_row(name, class, at.position, format!("rank {}: {text}", at.rank))
}

fn collect<'a>(model: &Model, program: &'a Program, rank: u32, posts: &mut Posts<'a>, found: &mut Vec<Violation>) {
    let Some((_, class)) = class_of(program, rank) else { return };

    for (position, instr) in class.instrs.iter().enumerate() {
        let at = RowPosition { rank, position };
        let (token, transfer, operand) = match instr {
            Instr::Start { token, transfer, operand } => (*token, transfer, *operand),
            Instr::Wait { token, .. } => {
                posts.waits.insert((rank, *token), at);
                continue;
            }
            _ => continue,
        };
        posts.starts.insert(at, token);
        let ty = operand.and_then(|reg| class.regs[reg].ty.as_ref());
        let bytes = ty.map_or(0, |ty| ty.local_bytes(&model.mesh));
        let known = match transfer {
            Transfer::Send { peer: to, tag } => peer(model, rank, to).map(|to| {
                posts.sends.entry((rank, to)).or_default().push(Half { at, tag: *tag, ty });
            }),
            Transfer::Recv { peer: from, tag, ty } => peer(model, rank, from).map(|from| {
                posts.receives.entry((from, rank)).or_default().push(Half { at, tag: *tag, ty: Some(ty) });
            }),
            Transfer::Sum { ranks } => posts.sum(model, at, ranks, format!("sum of {bytes} bytes")),
            Transfer::SumGradient { param, instance, ranks } => {
                posts.sum(model, at, ranks, format!("gradient of {param}.{instance}"))
            }
            Transfer::ShareParam { param, instance, from, ranks } => {
                posts.sum(model, at, ranks, format!("{param}.{instance} from rank {from}"))
            }
            Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => Some(()),
        };
        if known.is_none() {
            found.push(violation(program, "peer", at, "the peer does not exist".to_string()));
        }
    }
}

/// The other pipeline rank that an expression names on a rank, if it exists.
fn peer(model: &Model, rank: u32, expr: &Expr) -> Option<u32> {
    let mut coordinates = vec![0; model.mesh.axes.len()];
    if let Some(pp) = model.mesh.pipeline() {
        coordinates[pp.index()] = u64::from(rank);
    }
    let peer = u32::try_from(expr.eval(&coordinates)?).ok()?;
    (peer < pipeline_ranks(model) && peer != rank).then_some(peer)
}

impl Posts<'_> {
    /// The wait of a start.
    fn wait(&self, start: &RowPosition) -> RowPosition {
        self.waits[&(start.rank, self.starts[start])]
    }
    fn sum(&mut self, model: &Model, at: RowPosition, ranks: &[u32], what: String) -> Option<()> {
        let ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
        let known = ranks.contains(&at.rank) && ranks.iter().all(|&rank| rank < pipeline_ranks(model));
        (ascending && known).then(|| {
            self.sums.entry(ranks.to_vec()).or_default().entry(at.rank).or_default().push((at, what));
        })
    }
}

fn match_messages(program: &Program, posts: &Posts<'_>, order: &mut Order, found: &mut Vec<Violation>) {
    let pairs: std::collections::BTreeSet<_> = posts.sends.keys().chain(posts.receives.keys()).collect();
    for pair in pairs {
        let (sent, received) = (sorted_tags(&posts.sends, pair), sorted_tags(&posts.receives, pair));
        if sent != received {
            let (sent, received) = (sent.len(), received.len());
            let text = format!("rank {} sends {sent} messages to rank {}, which receives {received}", pair.0, pair.1);
            found.push(Violation::missing("unmatched-message", text));
            continue;
        }
        for (send, receive) in posts.sends[pair].iter().zip(&posts.receives[pair]) {
            if send.tag != receive.tag {
                let text = format!("tag {} is received where rank {} sends tag {}", receive.tag, pair.0, send.tag);
                found.push(violation(program, "message-order", receive.at, text));
                break;
            }
            if send.ty != receive.ty {
                let text = format!("tag {} is received with another type than rank {} sends", send.tag, pair.0);
                found.push(violation(program, "message-type", receive.at, text));
            }
            order.sends.insert(receive.at, send.at);
        }
    }
}

/// The tags of the messages of a pair of ranks, whatever their order.
fn sorted_tags(side: &Messages<'_>, pair: &(u32, u32)) -> Vec<u32> {
    let mut tags: Vec<u32> = side.get(pair).into_iter().flatten().map(|half| half.tag).collect();
    tags.sort_unstable();
    tags
}

fn match_sums(program: &Program, posts: &Posts<'_>, order: &mut Order, found: &mut Vec<Violation>) {
    for (ranks, members) in &posts.sums {
        let longest = ranks.iter().filter_map(|rank| members.get(rank)).map(Vec::len).max().unwrap_or(0);
        for place in 0..longest {
            let there: Vec<_> = ranks.iter().filter_map(|rank| members.get(rank)?.get(place)).collect();
            let (at, first) = (there[0].0, &there[0].1);
            if there.len() < ranks.len() || there.iter().any(|(_, what)| what != first) {
                let text = format!("the ranks {ranks:?} do not all start `{first}` as sum number {place}");
                found.push(violation(program, "collective-order", at, text));
                break;
            }
            let starts: Vec<RowPosition> = there.iter().map(|(at, _)| *at).collect();
            order.members.extend(starts.iter().map(|&at| (at, starts.clone())));
        }
    }
}

/// The dependencies: rows in order, and each wait after the starts of all its peers. An async run communicates with no other
/// pipeline rank. Within its own, it runs after the runs that started before it, so its wait depends only on earlier starts.
fn sort(
    program: &Program,
    ranks: u32,
    posts: &Posts<'_>,
    order: &Order,
    found: &mut Vec<Violation>,
) -> Option<Vec<RowPosition>> {
    let mut graph: DiGraph<RowPosition, ()> = DiGraph::new();
    let mut nodes: HashMap<RowPosition, NodeIndex> = HashMap::new();
    for rank in 0..ranks {
        let length = class_of(program, rank).map_or(0, |(_, class)| class.instrs.len());
        for position in 0..length {
            let at = RowPosition { rank, position };
            let node = graph.add_node(at);
            nodes.insert(at, node);
            if position > 0 {
                graph.add_edge(nodes[&RowPosition { rank, position: position - 1 }], node, ());
            }
        }
    }

    for (receive, send) in &order.sends {
        graph.add_edge(nodes[send], nodes[&posts.wait(receive)], ());
        graph.add_edge(nodes[receive], nodes[&posts.wait(send)], ());
    }
    for (start, members) in &order.members {
        for member in members.iter().filter(|member| *member != start) {
            graph.add_edge(nodes[member], nodes[&posts.wait(start)], ());
        }
    }
    if let Ok(sorted) = toposort(&graph, None) {
        return Some(sorted.into_iter().map(|node| graph[node]).collect());
    }
    for cycle in kosaraju_scc(&graph).into_iter().filter(|component| component.len() > 1) {
        let mut places: Vec<RowPosition> = cycle.into_iter().map(|node| graph[node]).collect();
        places.sort_by_key(|at| (at.rank, at.position));
        let stuck = places.chunk_by(|one, other| one.rank == other.rank);
        let text: Vec<String> = stuck
            .filter_map(|row| Some((row.first()?, row.last()?)))
            .map(|(first, last)| format!("rank {} at {} to {}", first.rank, first.position, last.position))
            .collect();
        found.push(violation(program, "deadlock", places[0], format!("{} wait for each other", text.join(", "))));
    }
    None
}
