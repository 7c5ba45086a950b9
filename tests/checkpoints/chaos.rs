//! Faults one after the other in a supervised run of several processes, and between two hosts. These take minutes or the rights of
//! root: `cargo test --test checkpoints -- --ignored chaos`.

use super::faults::{TRAIN, ended, folder, on_its_way};
use super::launched::{children, files, is_running, kill};
use super::runs::{Folder, losses};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Faults of the long test.
const FAULTS: usize = 200;

/// A pseudo-random number below a bound (Knuth's MMIX generator).
fn below(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % bound
}

/// Waits until something holds; `told` is what else to say if it does not.
fn until(what: &str, told: &dyn Fn() -> String, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}{}", told());
        sleep(Duration::from_millis(5));
    }
}

fn steps(folder: &Folder) -> usize {
    fs::read_to_string(folder.path("a/metrics.jsonl")).unwrap_or_default().lines().count()
}

/// A launcher that ends with its test, and its processes with it.
struct Launcher(Child);

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
#[ignore = "takes half an hour"]
fn chaos_of_two_hundred_faults_ends_with_the_bits_of_an_undisturbed_run() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 2000 --save-every 3 --keep-last 2 --parallel dp=4,tp=2 --mbs 1");
    folder.answer(&format!("{train} --out whole"));
    let launch = "launch -n 8 --max-restarts 100 --";
    // Files take its output: nobody reads a pipe meanwhile.
    let mut launcher =
        Launcher(on_its_way(&folder, "exec >said 2>told", &format!("{launch} {train} --silence 3 --out a")));
    let (mut random, mut before, mut happened) = (7, Vec::new(), [0; 4]);
    let told = || folder.read("told").lines().rev().take(30).map(|line| format!("\n{line}")).collect::<String>();
    for fault in 0..FAULTS {
        let mut all = Vec::new();
        until(&format!("the processes are started again after fault {fault} of {happened:?}"), &told, || {
            all = children(&launcher.0);
            assert!(launcher.0.try_wait().unwrap().is_none(), "it has ended before fault {fault}:{}", told());
            all.len() == 8 && all != before
        });
        // Some faults come while the processes start, others between steps, saves and validations.
        match below(&mut random, 4) {
            0 => sleep(Duration::from_millis(below(&mut random, 800) as u64)),
            _ => {
                let first = steps(&folder);
                let more = 1 + below(&mut random, 8);
                until("it takes steps", &told, || steps(&folder) >= first + more || children(&launcher.0) != all);
            }
        }
        let victims = 1 + below(&mut random, 2);
        let kind = below(&mut random, 4);
        for _ in 0..victims {
            let victim = all[below(&mut random, 8)];
            // A process may have ended on its own by now.
            let send =
                |name: &str| drop(Command::new("kill").args([&format!("-{name}"), &victim.to_string()]).output());
            match kind {
                0 | 1 => send("KILL"),
                2 => send("STOP"),
                _ => {
                    send("STOP");
                    sleep(Duration::from_millis(300));
                    send("CONT");
                }
            }
        }
        happened[kind] += 1;
        // A process that was stopped for a moment goes on.
        before = if kind == 3 { Vec::new() } else { all };
    }
    let status = launcher.0.wait().unwrap().code();
    assert_eq!(status, Some(0), "{}", told());
    let losses = |out: &str| losses(&folder.read(&format!("{out}/metrics.jsonl")));
    assert!(losses("whole") == losses("a"), "other losses after {happened:?}");
    assert!(files(&folder, "whole/step-00002000") == files(&folder, "a/step-00002000"), "another checkpoint");
    let names = fs::read_dir(folder.path("a")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let torn: Vec<String> = names.filter(|name| name.ends_with(".partial")).collect();
    assert!(torn.is_empty(), "{torn:?}");
    eprintln!("faults: {happened:?}; restarts: {}", folder.read("told").matches("launch: ").count());
}

#[test]
#[ignore = "needs the rights of root"]
fn chaos_of_disks_leaves_the_older_checkpoint() {
    let folder = folder();
    fs::create_dir(folder.path("a")).unwrap();
    let disk = Mount::new(&folder.path("a"), "size=600k");
    let train = format!("{TRAIN} --steps 100000 --save-every 10 --keep-last 50 --parallel dp=2 --out a");
    let launcher = on_its_way(&folder, ":", &format!("launch -n 2 -- {train}"));
    let (status, message) = ended(launcher);
    assert_eq!(status, Some(5), "{message}");
    assert!(message.contains("No space left"), "{message}");
    let goes_on = || {
        let step = folder.steps("a").pop().unwrap();
        let answer = folder.answer(&format!("train --resume a --steps {}", step + 20));
        assert!(answer.contains(&format!("resumed   after step {step}")), "{answer}");
    };
    disk.again("remount,size=64m");
    goes_on();
    // A disk that nobody writes to can become one that nobody may write to.
    disk.again("remount,ro");
    let steps = folder.steps("a");
    let (status, message) = folder.failure("train --resume a --steps 100000");
    assert!(status == 1 && message.contains("Read-only file system"), "{status} {message}");
    assert_eq!(folder.steps("a"), steps);
    disk.again("remount,rw");
    goes_on();
}

/// A file system in memory, which is gone when the test ends.
struct Mount(std::path::PathBuf);

impl Mount {
    fn new(at: &std::path::Path, options: &str) -> Mount {
        command("mount", &["-t", "tmpfs", "-o", options, "tmpfs", &at.display().to_string()]);
        Mount(at.to_path_buf())
    }

    fn again(&self, options: &str) {
        let at = self.0.display().to_string();
        command("mount", &["-o", options, &at]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0.display().to_string()]).status();
    }
}

fn command(name: &str, args: &[&str]) {
    let output = Command::new(name).args(args).output().unwrap();
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two hosts: network namespaces with a cable between them, and a name each.
struct Hosts([String; 2]);

impl Hosts {
    fn new() -> Hosts {
        let names = ["a", "b"].map(|name| format!("mw{}{name}", std::process::id() % 10_000));
        let hosts = Hosts(names);
        let [a, b] = &hosts.0;
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add v{a} netns {a} type veth peer name v{b} netns {b}"),
            format!("-n {a} addr add 10.77.0.1/24 dev v{a}"),
            format!("-n {b} addr add 10.77.0.2/24 dev v{b}"),
        ] {
            command("ip", &line.split(' ').collect::<Vec<_>>());
        }
        for name in [a, b] {
            hosts.link(name, "up");
            command("ip", &["-n", name, "link", "set", "lo", "up"]);
        }
        hosts
    }

    fn link(&self, name: &str, state: &str) {
        command("ip", &["-n", name, "link", "set", &format!("v{name}"), state]);
    }

    /// Changes the address of the card at which a host finds another one.
    fn neighbour(&self, name: &str, change: &[&str]) {
        let cable = format!("v{name}");
        command("ip", &[&["-n", name, "neigh"], change, &["dev", &cable]].concat());
    }

    /// Starts both processes of a run, one on each host.
    fn start(&self, folder: &Folder, args: &str) -> [Child; 2] {
        let start = |number: usize| {
            let name = &self.0[number];
            let script = format!("hostname host-{number}; exec {} {args}", env!("CARGO_BIN_EXE_meshwright"));
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, "unshare", "--uts", "sh", "-c", &script]).current_dir(folder.path(""));
            let number = number.to_string();
            let place = [
                ("RANK", number.as_str()),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "10.77.0.1"),
                ("MASTER_PORT", "29517"),
                ("MESHWRIGHT_SECRET", "what both hosts know"),
            ];
            command.envs(place).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        [start(0), start(1)]
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[test]
#[ignore = "needs the rights of root"]
fn chaos_between_two_hosts_is_named_ended_and_resumed() {
    let (folder, hosts) = (folder(), Hosts::new());
    let train = format!("{TRAIN} --parallel pp=2,dp=2 --mbs 1 --comm tcp --silence 2 --out a");
    // Undisturbed, with a trace of both.
    let [first, second] = hosts.start(&folder, &format!("{train} --steps 6 --save-every 6 --trace trace.json"));
    let [first, second] = [first, second].map(|child| child.wait_with_output().unwrap());
    let text = String::from_utf8_lossy(&first.stdout);
    assert!(first.status.success() && second.status.success(), "{text}{}", String::from_utf8_lossy(&first.stderr));
    assert!(text.contains("threads of 2 processes on 2 hosts, joined by TCP"), "{text}");
    let trace = folder.read("trace.json");
    assert!(trace.contains("process 0 on host-0") && trace.contains("process 1 on host-1"));
    // The link goes down; or all that one host sends goes to nobody, of which the system says nothing.
    let cut = |hosts: &Hosts, name: &str, is_cut: bool, by_link: bool| match (by_link, is_cut) {
        (true, _) => hosts.link(name, if is_cut { "down" } else { "up" }),
        (false, true) => {
            hosts.neighbour(name, &["replace", "10.77.0.1", "lladdr", "02:00:00:00:00:99", "nud", "permanent"])
        }
        (false, false) => hosts.neighbour(name, &["del", "10.77.0.1"]),
    };
    for by_link in [true, false] {
        let resume = "train --resume a --steps 1000000 --save-every 5 --comm tcp --silence 2";
        let all = hosts.start(&folder, resume);
        let first = steps(&folder);
        until("it goes on", &String::new, || steps(&folder) > first + 20);
        let victim = &hosts.0[1];
        cut(&hosts, victim, true, by_link);
        let began = Instant::now();
        for (child, other) in all.into_iter().zip([1, 0]) {
            let (status, message) = ended(child);
            let named = format!("process {other} on host-{other} ");
            assert!(
                status == Some(5) && message.contains("error[MW0707]") && message.contains(&named),
                "{status:?} {message}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        cut(&hosts, victim, false, by_link);
        let step = folder.steps("a").pop().unwrap();
        let [first, second] = hosts.start(&folder, &format!("train --resume a --steps {} --comm tcp", step + 5));
        let [first, second] = [first, second].map(|child| child.wait_with_output().unwrap());
        let text = String::from_utf8_lossy(&first.stdout);
        assert!(first.status.success() && second.status.success(), "{text}{}", String::from_utf8_lossy(&first.stderr));
        assert!(text.contains(&format!("resumed   after step {step} ")), "{text}");
    }
}

#[test]
fn chaos_of_a_moment_is_no_failure() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 400 --save-every 100 --parallel dp=2");
    folder.answer(&format!("{train} --out whole"));
    let launcher = on_its_way(&folder, ":", &format!("launch -n 2 -- {train} --out a"));
    let victim = children(&launcher)[1];
    kill(victim, "STOP");
    sleep(Duration::from_millis(500));
    kill(victim, "CONT");
    let (status, message) = ended(launcher);
    assert!(status == Some(0) && !is_running(victim), "{message}");
    let losses = |out: &str| losses(&folder.read(&format!("{out}/metrics.jsonl")));
    assert_eq!(losses("whole"), losses("a"));
}
