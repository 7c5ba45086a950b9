//! Agreement of the processes of a run before its first step: each states the settings that it was started with and what its data,
//! weights and program are, and all compare them with those of process 0.

use super::request::TrainRequest;
use super::run::executor_error;
use crate::error::Error;
use comm::wire::{Process, World};
use device::random::key;
use exec::Platform;
use ir::catalogue::Code;
use ir::optimizer::Matrices;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf, absolute};

/// This program, with the features that it was built with.
const PROGRAM: &str = if cfg!(feature = "mpi") {
    concat!(env!("CARGO_PKG_VERSION"), " with mpi")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " without features")
};

/// The most differences that a message lists.
const MOST_LISTED: usize = 3;

/// A statement of a process, which must be that of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fact {
    /// Its name for the user: a flag, or what it is about.
    name: String,
    value: String,
    /// True if it must only be that of the processes on the same host.
    is_of_host: bool,
}

impl Fact {
    /// One that must be the same everywhere.
    pub(super) fn new(name: &str, value: impl Display) -> Fact {
        Fact { name: name.to_string(), value: value.to_string(), is_of_host: false }
    }

    /// One about something too long to be compared itself.
    pub(super) fn digest(name: &str, text: String) -> Fact {
        let [low, high] = key(&[text.as_bytes()]);
        Fact::new(name, format!("{low:08x}{high:08x}"))
    }

    fn of_host(self) -> Fact {
        Fact { is_of_host: true, ..self }
    }
}

/// The facts about the settings of a request, and about this program.
pub(super) fn settings(request: &TrainRequest) -> Vec<Fact> {
    [of_job, of_optimizer, of_records, of_processes].into_iter().flat_map(|of| of(request)).collect()
}

/// The program, and what a run computes on what.
fn of_job(request: &TrainRequest) -> Vec<Fact> {
    vec![
        Fact::new("the program", PROGRAM),
        Fact::new("--comm", &request.comm),
        Fact::new("--backend", &request.backend),
        Fact::new("--parallel", &request.parallel),
        Fact::new("--seq", request.seq),
        Fact::new("--global-batch", request.global_batch),
        Fact::new("--precision", &request.precision),
        Fact::new("--steps", request.steps),
        Fact::new("--seed", request.seed),
        Fact::new("--init-from", given(&request.init_from)),
        Fact::new("the place of --init-from", place_text(&request.init_from)).of_host(),
        Fact::new("--resume", given(&request.resume)),
        Fact::new("the place of --resume", place_text(&request.resume)).of_host(),
        Fact::new("--eos", text(&request.eos)),
        Fact::new("--loss-on", text(&request.loss_on)),
        Fact::new("--valid", given(&request.valid)),
        Fact::new("--valid-fraction", request.valid_fraction),
    ]
}

/// The optimizer and its rates.
fn of_optimizer(request: &TrainRequest) -> Vec<Fact> {
    vec![
        Fact::new("--optimizer", &request.optimizer),
        Fact::new("--lr", request.lr),
        Fact::new("--min-lr", text(&request.min_lr)),
        Fact::new("--warmup", request.warmup),
        Fact::new("--lr-schedule", &request.lr_schedule),
        Fact::new("--decay-steps", text(&request.decay_steps)),
        Fact::new("--beta1", text(&request.beta1)),
        Fact::new("--beta2", text(&request.beta2)),
        Fact::new("--eps", text(&request.eps)),
        Fact::new("--momentum", text(&request.momentum)),
        Fact::new("--nesterov", text(&request.nesterov)),
        Fact::new("--matrices", text(&request.matrices.map(Matrices::name))),
        Fact::new("--weight-decay", request.weight_decay),
        Fact::new("--clip", request.clip),
        Fact::new("--skip-nonfinite", request.skip_nonfinite),
    ]
}

/// The validations, checkpoints and files of a run.
fn of_records(request: &TrainRequest) -> Vec<Fact> {
    vec![
        Fact::new("--eval-every", request.eval_every),
        Fact::new("--eval-batches", request.eval_batches),
        Fact::new("--final-eval-batches", text(&request.final_eval_batches)),
        Fact::new("--save-every", request.save_every),
        Fact::new("--routing-every", request.routing_every),
        Fact::new("--keep-last", request.keep_last),
        Fact::new("--out", place_of(&request.out).display()).of_host(),
        Fact::new("--profile", request.profile),
        Fact::new("--trace", given(&request.trace)),
        Fact::new("--trace-step", text(&request.trace_step)),
    ]
}

/// The work of the processes and its checks.
fn of_processes(request: &TrainRequest) -> Vec<Fact> {
    vec![
        Fact::new("--compare-data", request.compare_data),
        Fact::new("--check-replicas", request.check_replicas),
        Fact::new("--sums", text(&request.sums)),
        Fact::new("--silence", request.silence),
        Fact::new("--timeout", request.timeout),
        Fact::new("--no-fusion", request.no_fusion),
        Fact::new("--no-graphs", request.no_graphs),
        Fact::new("--time-products", request.time_products),
        Fact::new("--poison", request.poison),
        Fact::new("--inject", text(&request.inject)),
    ]
}

/// The place of a folder that is given.
fn place_text(folder: &Option<PathBuf>) -> String {
    folder.as_ref().map_or("not given".to_string(), |folder| place_of(folder).display().to_string())
}

/// The place of a folder, which may not be there yet: a part of it that is there has one name alone.
fn place_of(folder: &Path) -> PathBuf {
    let whole = absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let (mut place, mut parts) = (PathBuf::new(), whole.components());
    for part in parts.by_ref() {
        place.push(part);
        match place.canonicalize() {
            Ok(there) => place = there,
            Err(_) => break,
        }
    }
    for part in parts {
        match part {
            Component::ParentDir => drop(place.pop()),
            part => place.push(part),
        }
    }
    place
}

/// The text of what may be absent.
fn text<T: Display>(value: &Option<T>) -> String {
    value.as_ref().map_or("not given".to_string(), T::to_string)
}

/// The word for a file that is given, wherever it is, or is not.
fn given<T>(value: &Option<T>) -> &'static str {
    if value.is_some() { "given" } else { "not given" }
}

/// Compares the facts of this process with those of all others. A process that cannot take part tells the others why.
///
/// # Errors
/// Its own error; or another process cannot take part, or was started differently; or a process is gone.
pub(super) fn agree<P: Platform, T>(
    platform: &P,
    own: Result<T, Error>,
    facts: impl FnOnce(&T) -> Result<Vec<Fact>, Error>,
) -> Result<T, Error> {
    let Some(world) = platform.world() else { return own };
    let own = own.and_then(|own| facts(&own).map(|facts| (own, facts)));
    let stated = own.as_ref().map(|(_, facts)| facts).map_err(|why| Refusal(why.message()));
    let bytes = serde_json::to_vec(&stated).map_err(|why| Error::fault("agreement", why))?;
    let all = platform.share(bytes);
    let (own, _) = own?;
    let all = all.map_err(|failure| executor_error(failure.into()))?;
    let stated: Vec<Stated> = all.iter().map(|bytes| read(bytes)).collect();
    compare(world, &stated)?;
    Ok(own)
}

/// The reason why a process cannot take part, as it goes to the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Refusal(String);

/// Facts of a process, or its refusal.
type Stated = Result<Vec<Fact>, Refusal>;

fn read(bytes: &[u8]) -> Stated {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Err(Refusal("it is of another version".to_string())))
}

/// Compares what all processes have stated, by process.
fn compare(world: &World, stated: &[Stated]) -> Result<(), Error> {
    let processes = &world.processes;
    let mut all = Vec::with_capacity(processes.len());
    for (number, process) in processes.iter().enumerate() {
        all.push(stated[number].as_ref().map_err(|Refusal(why)| {
            let message = format!("process {number} on {} cannot take part: {why}", process.host);
            Error::input(Code::ProcessesDiffer, message).help("mend the cause, then start all processes again")
        })?);
    }
    let mut listed: Vec<String> = Vec::new();
    for (at, first) in all[0].iter().enumerate() {
        let other =
            (1..all.len()).find(|&number| differs(first, all[number].get(at), &processes[0], &processes[number]));
        listed.extend(other.map(|number| {
            let theirs = all[number].get(at).map_or("not stated", |fact| fact.value.as_str());
            let [zero, host] = [0, number].map(|number| &processes[number].host);
            format!(
                "{} is {} in process 0 on {zero}, but {theirs} in process {number} on {host}",
                first.name, first.value
            )
        }));
    }
    if listed.is_empty() {
        return Ok(());
    }
    let more = listed.len().saturating_sub(MOST_LISTED);
    listed.truncate(MOST_LISTED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!("the processes were started differently: {}{more}", listed.join("; "));
    Err(Error::input(Code::ProcessesDiffer, message)
        .help("start all processes with the same program, options and files; paths may differ from host to host"))
}

fn differs(first: &Fact, other: Option<&Fact>, here: &Process, there: &Process) -> bool {
    other != Some(first) && !(first.is_of_host && here.host != there.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a request that are not compared: where files are, whose content is, and what the configuration has in it already.
    const LEFT_OUT: [&str; 9] =
        ["model", "mbs", "sp", "zero", "schedule", "data", "blend", "data_format", "trusted_network"];

    fn world(hosts: &[&str]) -> World {
        let process = |(rank, host): (usize, &&str)| Process { host: host.to_string(), ranks: vec![rank] };
        World { me: 0, processes: hosts.iter().enumerate().map(process).collect() }
    }

    fn told(hosts: &[&str], requests: &[TrainRequest]) -> Option<String> {
        let stated: Vec<_> = requests.iter().map(|request| Ok(settings(request))).collect();
        compare(&world(hosts), &stated).err().map(|error| error.message())
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let one = TrainRequest::default();
        assert_eq!(told(&["a", "b"], &[one.clone(), one.clone()]), None);
        let other = TrainRequest { lr: 1e-3, min_lr: Some(0.5), ..one.clone() };
        let message = told(&["a", "a", "b"], &[one.clone(), one.clone(), other]).unwrap();
        assert_eq!(
            message,
            "the processes were started differently: --lr is 0.002 in process 0 on a, but 0.001 in process 2 on b; \
             --min-lr is not given in process 0 on a, but 0.5 in process 2 on b"
        );
        let other = TrainRequest { lr: 1.0, warmup: 1, seed: 7, steps: 3, clip: 2.0, ..one.clone() };
        let message = told(&["a", "b"], &[one, other]).unwrap();
        assert!(message.contains("--steps is 400 in") && message.ends_with("; and 2 more"), "{message}");
    }

    #[test]
    fn programs_are_compared_first() {
        let facts = settings(&TrainRequest::default());
        let mut other = facts.clone();
        other[0].value = "0.0.9 without features".to_string();
        other[1].value = "tcp".to_string();
        let message = compare(&world(&["a", "b"]), &[Ok(facts.clone()), Ok(other)]).unwrap_err().message();
        let first =
            format!("the processes were started differently: the program is {PROGRAM} in process 0 on a, but 0.0.9");
        assert!(message.starts_with(&first), "{message}");
        // A later version may state more or less.
        assert!(compare(&world(&["a", "b"]), &[Ok(facts.clone()), Ok(facts[..5].to_vec())]).is_err());
    }

    #[test]
    fn every_field_is_compared_or_left_out_on_purpose() {
        let shown = format!("{:#?}", TrainRequest::default());
        // Fields of the request itself are one level deep.
        let fields = shown.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
        let fields: Vec<&str> = fields.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
        let compared = settings(&TrainRequest::default());
        let flag = |name: &str| format!("--{}", name.replace('_', "-"));
        let is_compared = |name: &str| compared.iter().any(|fact| fact.name == flag(name));
        assert!(fields.len() > 50 && LEFT_OUT.iter().all(|name| fields.contains(name) && !is_compared(name)));
        let forgotten: Vec<_> = fields.iter().filter(|name| !is_compared(name) && !LEFT_OUT.contains(name)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }

    #[test]
    fn folders_are_compared_on_one_host_alone() {
        let [one, other] = ["x", "y"].map(|out| TrainRequest { out: out.into(), ..TrainRequest::default() });
        assert_eq!(told(&["a", "b"], &[one.clone(), other.clone()]), None);
        assert!(told(&["a", "a"], &[one.clone(), other]).unwrap().contains("/x in process 0 on a, but "));
        let elsewhere = TrainRequest { data: "elsewhere".into(), ..one.clone() };
        assert_eq!(told(&["a", "a"], &[one, elsewhere]), None);
    }

    #[test]
    fn a_folder_has_one_place_whether_it_is_there_or_not() {
        let home = tempfile::tempdir().unwrap();
        let named = |name: &str| place_of(&home.path().join(name));
        let before = ["a/b", "a/./b", "a/c/../b"].map(named);
        std::fs::create_dir_all(home.path().join("a/b")).unwrap();
        std::fs::create_dir(home.path().join("c")).unwrap();
        let after = ["a/b", "c/../a/b", "a/b/../b"].map(named);
        assert!(before.iter().chain(&after).all(|place| *place == before[0]), "{before:?} {after:?}");
    }

    #[test]
    fn who_cannot_take_part_is_named_first() {
        let stated = [Ok(settings(&TrainRequest::default())), Err(Refusal("data not found".to_string()))];
        let message = compare(&world(&["a", "b"]), &stated).unwrap_err().message();
        assert_eq!(message, "process 1 on b cannot take part: data not found");
    }
}
