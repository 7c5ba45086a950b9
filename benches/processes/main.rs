//! Sums of two processes on this host: seconds of an all-reduce by each wire, and the least that what is below the wire takes.
//!
//! `cargo bench --bench processes` prints a table of docs/benchmarks.md; `--features mpi` adds MPI, and needs `mpirun` and `mpicc`.

mod floor;

use meshwright::runtime::arena::Arena;
use meshwright::runtime::backend::Span;
use meshwright::runtime::comm::threads::Fabric;
use meshwright::runtime::comm::wire::{Wire, World};
use meshwright::runtime::comm::{Exchange, HostMemory, Limits, Parking, Sums, ThreadRole, Transport};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// Numbers of a sum, and how often it is made: eight bytes and 64 MiB.
const SIZES: [(&str, usize, usize); 2] = [("8 bytes", 2, 4000), ("64 MiB", 1 << 24, 16)];

/// Turns of each wire, of which the median counts.
const TURNS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match args.first().map(String::as_str) {
        Some("member") => member(&args[1]),
        _ => report(),
    }
}

/// Prints the table.
fn report() {
    let mut kinds = vec![("plain sockets", "sockets"), ("tcp", "sockets")];
    if cfg!(feature = "mpi") {
        kinds.extend([("MPI_Allreduce", "MPI"), ("mpi", "MPI"), ("mpi, sums engine", "MPI")]);
    }
    let mut seconds: Vec<[Vec<f64>; 2]> = kinds.iter().map(|_| Default::default()).collect();
    for turn in 1..=TURNS {
        for ((kind, _), all) in kinds.iter().zip(&mut seconds) {
            eprintln!("turn {turn}/{TURNS}  {kind}");
            all.iter_mut().zip(measure(kind)).for_each(|(all, one)| all.push(one));
        }
    }
    println!("| sum of two processes | 8 bytes | to the floor | 64 MiB | to the floor |\n|---|---|---|---|---|");
    let mut floor = [0.0; 2];
    for ((kind, _), all) in kinds.iter().zip(seconds) {
        let each = all.map(median);
        if matches!(*kind, "plain sockets" | "MPI_Allreduce") {
            floor = each;
        }
        let [small, large] = each;
        let [to_small, to_large] = [small / floor[0], large / floor[1]];
        println!("| {kind} | {:.1} us | {to_small:.2} | {:.1} ms | {to_large:.2} |", small * 1e6, large * 1e3);
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The seconds of a sum of each size, in two processes.
fn measure(kind: &str) -> [f64; 2] {
    let own = std::env::current_exe().unwrap();
    let mut commands = match kind {
        "MPI_Allreduce" => vec![mpirun(&floor::mpi_program())],
        _ if kind.starts_with("mpi") => vec![mpirun(&own)],
        _ => (0..2).map(|number| tcp_member(&own, number)).collect(),
    };
    let port = tcp::free_port().unwrap().to_string();
    let start = |command: &mut Command| {
        let command = command.args(["member", kind]).env("MASTER_PORT", &port).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = commands.iter_mut().map(start).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{kind}");
    let text: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout)).collect();
    let mut seconds = text.split_whitespace().map(|word| word.parse::<f64>().unwrap());
    std::array::from_fn(|_| seconds.next().unwrap())
}

fn mpirun(program: &std::path::Path) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]).arg(program);
    command
}

fn tcp_member(program: &std::path::Path, number: usize) -> Command {
    let mut command = Command::new(program);
    command.env("RANK", number.to_string()).env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1");
    command
}

/// One of the two processes. The first prints the seconds of each size.
fn member(kind: &str) {
    let seconds = match kind {
        "plain sockets" => floor::sockets(SIZES.map(|(_, len, rounds)| [len, rounds])),
        _ => {
            let (world, wire) = open(kind);
            let sums = if kind.ends_with("engine") { Sums::Engine } else { Sums::Exact };
            let is_first = world.me == 0;
            let seconds = sum(world, wire, sums);
            is_first.then_some(seconds)
        }
    };
    seconds.into_iter().for_each(|[small, large]| println!("{small} {large}"));
}

fn open(kind: &str) -> (World, Box<dyn Wire>) {
    #[cfg(feature = "mpi")]
    if kind.starts_with("mpi") {
        return mpi::open(2).unwrap();
    }
    assert_eq!(kind, "tcp");
    tcp::open(&tcp::Member::from_env(tcp::Network::Open).unwrap(), 2, tcp::PATIENCE, &mut |_| ()).unwrap()
}

/// The median seconds of sums over both processes, in each size.
fn sum(world: World, wire: Box<dyn Wire>, sums: Sums) -> [f64; 2] {
    let rank = world.me;
    let fabric = Fabric::<HostMemory>::of(world, false);
    fabric.add_by(sums);
    let arena = Arena::new(SIZES[1].1 * size_of::<f32>()).unwrap();
    let mut end = fabric.endpoint(rank, Arc::new(arena), HostMemory::default());
    end.expect(1, 1);
    let group = end.join(&[0, 1], ThreadRole::Main).unwrap();
    let plans = SIZES.map(|(name, len, _)| {
        end.fit(&group, name, &[ir::types::DType::F32], &mut |rank| Ok(Exchange::sum(vec![0, 1], rank, len))).unwrap()
    });
    fabric.start(wire, Limits::default()).unwrap();
    fabric.join(&HostMemory::default()).unwrap();
    fabric.enter(1);
    let seconds = std::array::from_fn(|size| {
        let (plan, (_, len, rounds)) = (&plans[size], SIZES[size]);
        let tensor = [Span::new(ir::types::DType::F32, 0, len)];
        let once = || {
            let began = Instant::now();
            let mut request = end.start(&group, plan, &tensor, &tensor);
            let waited = end.wait(&mut || {
                end.advance(&group, plan, &mut request);
                (!request.is_complete()).then(|| end.wait_reason(&group, plan, request.number()))
            });
            waited.unwrap();
            began.elapsed().as_secs_f64()
        };
        (0..rounds / 8).for_each(|_| _ = once());
        median((0..rounds).map(|_| once()).collect())
    });
    end.leave();
    fabric.end();
    seconds
}
