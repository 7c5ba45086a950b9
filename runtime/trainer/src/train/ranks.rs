//! The place of each rank of a run: its process, its host, and the axes whose groups cross hosts.

use super::comm::{Comm, decline};
use super::prepare::{Given, Prepared, prepare};
use super::report::Quiet;
use super::request::TrainRequest;
use super::run::executor_error;
use crate::error::Error;
use device::cores::cores_of;
use exec::{Platform, Threads};
use ir::mesh::{Axes, Mesh};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use support::table::table;

/// Name and version of the schema of a [`RankReport`].
const SCHEMA: &str = "meshwright.ranks/1";

/// The ranks of a run and where they are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankReport {
    /// `meshwright.ranks/1`.
    pub schema: &'static str,
    /// By rank.
    pub ranks: Vec<RankPlace>,
    /// The axes of the mesh in rank order.
    pub axes: Vec<AxisSpread>,
}

/// A rank and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankPlace {
    /// Its number.
    pub rank: usize,
    /// The number of its process.
    pub process: usize,
    /// The name of the machine.
    pub host: String,
    /// The id that the system has given to the process.
    pub pid: u32,
    /// The cores that its main thread may run on; empty if the system does not say.
    pub cores: Vec<usize>,
    /// Its coordinate along each axis.
    pub coordinates: BTreeMap<String, u64>,
}

/// The groups of ranks along an axis, by how far apart the members are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AxisSpread {
    /// Its name.
    pub axis: String,
    /// The ranks of each group.
    pub size: u64,
    /// Groups inside one process.
    pub inside_processes: u64,
    /// Groups inside one host, but in several processes.
    pub inside_hosts: u64,
    /// Groups across hosts.
    pub across_hosts: u64,
}

/// Joins the processes of a run, and says where its ranks are. Nothing is loaded or written.
///
/// # Errors
/// The request is invalid, or the processes cannot be joined.
pub fn ranks(request: &TrainRequest) -> Result<RankReport, Error> {
    let Prepared { request, compiled, .. } =
        prepare(request, Given::default()).inspect_err(|why| decline(request, &why.message()))?;
    let mesh = &compiled.model.mesh;
    let comm = Comm::parse(&request.comm)?;
    comm.check(mesh.devices(), &request).inspect_err(|why| decline(&request, &why.message()))?;
    let (threads, _) = comm.place(mesh.devices() as usize, &request, &mut Quiet)?;
    let ranks = gather(&threads, own(&threads, mesh))?;
    let axes = mesh.axes.iter().map(|(id, axis)| AxisSpread::of(mesh, &Axes::one(id), &axis.name, &ranks)).collect();
    Ok(RankReport { schema: SCHEMA, axes, ranks })
}

/// The places of the ranks of this process.
fn own(threads: &Threads, mesh: &Mesh) -> Vec<RankPlace> {
    let (ranks, processes) = (threads.ranks(), threads.processes());
    let places = ranks.iter().enumerate().map(|(place, &rank)| {
        let process = processes.iter().position(|process| process.ranks.contains(&rank));
        let names = mesh.axes.values().map(|axis| axis.name.clone());
        RankPlace {
            rank,
            process: process.unwrap_or(0),
            host: process.map_or_else(tcp::host, |process| processes[process].host.clone()),
            pid: std::process::id(),
            cores: cores_of(place, ranks.len()),
            coordinates: names.zip(mesh.coordinates(rank as u64)).collect(),
        }
    });
    places.collect()
}

/// The places of the ranks of all processes.
fn gather(threads: &Threads, own: Vec<RankPlace>) -> Result<Vec<RankPlace>, Error> {
    if threads.world().is_none() {
        return Ok(own);
    }
    threads.start().map_err(executor_error)?;
    let all = threads.share(serde_json::to_vec(&own).map_err(|why| Error::fault("ranks", why))?);
    let all = all.map_err(|failure| executor_error(failure.into()))?;
    threads.finish();
    let read = all.iter().map(|bytes| serde_json::from_slice::<Vec<RankPlace>>(bytes));
    let mut ranks = read.collect::<Result<Vec<_>, _>>().map_err(|why| Error::fault("ranks", why))?.concat();
    ranks.sort_by_key(|place| place.rank);
    Ok(ranks)
}

impl AxisSpread {
    fn of(mesh: &Mesh, axis: &Axes, name: &str, ranks: &[RankPlace]) -> AxisSpread {
        let mut counts = [0; 3];
        let firsts = (0..mesh.devices()).filter(|&rank| mesh.index_along(axis, &mesh.coordinates(rank)) == 0);
        for first in firsts {
            let first_place = &ranks[first as usize];
            let peers = mesh.peers(first, axis);
            let distances = peers.iter().map(|&peer| &ranks[peer as usize]).map(|other| match () {
                () if other.host != first_place.host => 2,
                () if other.process != first_place.process => 1,
                () => 0,
            });
            counts[distances.max().unwrap_or(0)] += 1;
        }
        let [inside_processes, inside_hosts, across_hosts] = counts;
        AxisSpread { axis: name.to_string(), size: mesh.size(axis), inside_processes, inside_hosts, across_hosts }
    }

    /// In words: `inside a host`, or how many groups are where.
    fn text(&self) -> String {
        let kinds = [
            (self.inside_processes, "inside a process"),
            (self.inside_hosts, "inside a host, across processes"),
            (self.across_hosts, "across hosts"),
        ];
        let all: u64 = kinds.iter().map(|(count, _)| count).sum();
        let texts = kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, text)| match count {
            count if count == all => text.to_string(),
            count => format!("{count} of {all} groups {text}"),
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    fn row(&self) -> [String; 3] {
        [self.axis.clone(), self.size.to_string(), self.text()]
    }
}

impl RankPlace {
    fn row(&self, axes: &[AxisSpread]) -> [String; 6] {
        let coordinates = axes.iter().map(|axis| format!("{}={}", axis.axis, self.coordinates[&axis.axis]));
        let coordinates = coordinates.collect::<Vec<_>>().join(" ");
        let [rank, process] = [self.rank, self.process].map(|number| number.to_string());
        [rank, process, self.host.clone(), self.pid.to_string(), ranges(&self.cores), coordinates]
    }
}

/// A table of ranks and one of axes.
impl fmt::Display for RankReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.ranks.iter().map(|place| place.row(&self.axes)).collect();
        f.write_str(&table(["RANK", "PROCESS", "HOST", "PID", "CORES", "COORDINATES"], &rows))?;
        let rows: Vec<_> = self.axes.iter().map(AxisSpread::row).collect();
        if rows.is_empty() { Ok(()) } else { write!(f, "\n{}", table(["AXIS", "SIZE", "GROUPS"], &rows)) }
    }
}

/// Ascending numbers, neighbours as a range: `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(usize::to_string).collect(),
    });
    if numbers.is_empty() { "any".to_string() } else { runs.collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_by_how_far_apart_they_are() {
        // Two hosts, three processes: ranks 0 and 1, 2 and 3, 4 to 7.
        let mesh = Mesh::new("m", &[("pp", 2), ("dp", 2), ("tp", 2)]);
        let place = |rank: usize| RankPlace {
            rank,
            process: [0, 0, 1, 1, 2, 2, 2, 2][rank],
            host: ["a", "b"][rank / 4].to_string(),
            pid: 1,
            cores: Vec::new(),
            coordinates: BTreeMap::new(),
        };
        let ranks: Vec<RankPlace> = (0..8).map(place).collect();
        let spread = |name: &str| AxisSpread::of(&mesh, &mesh.lookup(name).unwrap(), name, &ranks);
        let texts = ["pp", "dp", "tp"].map(|name| spread(name).text());
        let mixed = "2 of 4 groups inside a process; 2 of 4 groups inside a host, across processes";
        assert_eq!(texts, ["across hosts", mixed, "inside a process"]);
        assert_eq!([&[0, 1, 2, 5, 7, 8][..], &[3], &[]].map(ranges), ["0-2,5,7-8", "3", "any"]);
    }
}
