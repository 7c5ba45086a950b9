//! Floors of sums of two processes: sockets that move as many bytes, and the all-reduce of MPI itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program that times `MPI_Allreduce`, compiled with the wrapper of MPI.
pub(crate) fn mpi_program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/processes/all_reduce.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("all_reduce");
    let status = Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(status.success(), "mpicc");
    program
}

/// The median seconds in which two processes send each other as many bytes as a sum needs. Only the first process gets them.
pub(crate) fn sockets(sizes: [[usize; 2]; 2]) -> Option<[f64; 2]> {
    let var = |name: &str| std::env::var(name).unwrap();
    let is_first = var("RANK") == "0";
    let address = ("127.0.0.1", var("MASTER_PORT").parse().unwrap());
    let stream = match is_first {
        true => TcpListener::bind(address).unwrap().accept().unwrap().0,
        false => connect(address),
    };
    stream.set_nodelay(true).unwrap();
    let seconds = sizes.map(|[len, rounds]| {
        let bytes = len * size_of::<f32>();
        let (sent, mut received) = (vec![1; bytes], vec![1; bytes]);
        let mut once = || both_ways(&stream, &sent, &mut received);
        (0..rounds / 8).for_each(|_| _ = once());
        super::median((0..rounds).map(|_| once()).collect())
    });
    is_first.then_some(seconds)
}

fn connect(address: (&str, u16)) -> TcpStream {
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends bytes and receives as many, at the same time if they are many. Returns the seconds.
fn both_ways(mut stream: &TcpStream, sent: &[u8], received: &mut [u8]) -> f64 {
    let began = Instant::now();
    if sent.len() < 1 << 12 {
        stream.write_all(sent).unwrap();
        stream.read_exact(received).unwrap();
        return began.elapsed().as_secs_f64();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| (&*stream).write_all(sent).unwrap());
        stream.read_exact(received).unwrap();
    });
    began.elapsed().as_secs_f64()
}
