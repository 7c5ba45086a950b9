//! Building blocks of rows that all makers of orders share: the end of a step, and backwards split into I and W.

use ir::schedule::{Action, Item, Kind, Schedule};

/// Appends the actions that end a step (R, N, U) to the work of a row.
pub fn with_step_end(work: impl IntoIterator<Item = Action>) -> Vec<Action> {
    work.into_iter().chain([Kind::R, Kind::N, Kind::U].map(|kind| Action::One(Item::step(kind)))).collect()
}

/// Replaces every B by I and a W right after it. The previous stage gets its gradient after I, so with split costs the result
/// is never slower. A B in an overlapped pair stays one action.
pub fn split_backward(mut schedule: Schedule) -> Schedule {
    for row in &mut schedule.rows {
        *row = row.iter().flat_map(split_action).collect();
    }
    schedule
}

fn split_action(action: &Action) -> impl Iterator<Item = Action> + use<> {
    let (first, second) = match *action {
        Action::One(item) if item.kind == Kind::B => {
            (Action::One(Item { kind: Kind::I, ..item }), Some(Action::One(Item { kind: Kind::W, ..item })))
        }
        other => (other, None),
    };
    std::iter::once(first).chain(second)
}
