//! The processes that a launch has started.

use super::program;
use crate::error::Error;
use crate::train::Signal;
use ir::catalogue::Code;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Variable with the process id of who has started this process.
const LAUNCHER: &str = "MESHWRIGHT_LAUNCHER";

/// Processes, and the threads that print what they say.
pub(super) struct Children {
    all: Vec<(Child, Option<End>)>,
    /// Since when each is stopped, if it is.
    stopped: Vec<Option<Instant>>,
    printers: Vec<JoinHandle<()>>,
    /// The first error that one has printed.
    said: Arc<OnceLock<String>>,
}

/// End of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Status(u8),
    Signal(i32),
}

impl Children {
    /// Starts them.
    ///
    /// # Errors
    /// The system has no port or no processes.
    pub(super) fn start(processes: usize, args: &[OsString]) -> Result<Children, Error> {
        Children::spawn(processes, args).map_err(|why| {
            Error::input(Code::BadOption, format!("{processes} processes cannot be started: {why}"))
                .help("start fewer, or raise the limits (ulimit -u, ulimit -n)")
        })
    }

    fn spawn(processes: usize, args: &[OsString]) -> io::Result<Children> {
        let port = tcp::free_port()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let run = format!("{}-{now}", std::process::id());
        let secret = tcp::Secret::draw()?;
        let (all, printers, stopped, said) = (Vec::new(), Vec::new(), vec![None; processes], Arc::default());
        let mut children = Children { all, stopped, printers, said };
        for number in 0..processes {
            let mut command = program()?;
            command.args(with_comm(args)).stdin(Stdio::null()).stderr(Stdio::piped());
            let [number_text, count] = [number, processes].map(|number| number.to_string());
            for (name, value) in [("RANK", &number_text), ("LOCAL_RANK", &number_text), ("WORLD_SIZE", &count)] {
                command.env(name, value);
            }
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("MESHWRIGHT_RUN", &run).env(LAUNCHER, std::process::id().to_string());
            command.env("MESHWRIGHT_SECRET", &secret).env_remove("MESHWRIGHT_SECRET_FILE");
            command.env_remove("TORCHELASTIC_USE_AGENT_STORE");
            // A signal of the terminal comes here alone, and is passed on.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let mut child = command.spawn()?;
            let lines = child.stderr.take();
            children.all.push((child, None));
            children.printers.extend(lines.map(|lines| printer(number, lines, children.said.clone())));
        }
        Ok(children)
    }

    pub(super) fn is_running(&self) -> bool {
        self.all.iter().any(|(_, end)| end.is_none())
    }

    /// The processes that have ended since the last call, first those that a signal has ended: others end because they are gone.
    ///
    /// # Errors
    /// The system does not tell.
    pub(super) fn ended(&mut self) -> Result<Vec<(usize, End)>, Error> {
        let mut ended = Vec::new();
        for (number, (child, end)) in self.all.iter_mut().enumerate().filter(|(_, (_, end))| end.is_none()) {
            let status = child.try_wait().map_err(|why| Error::fault("launch", why))?;
            *end = status.map(end_of);
            ended.extend(end.map(|end| (number, end)));
        }
        ended.sort_by_key(|(_, end)| matches!(end, End::Status(_)));
        Ok(ended)
    }

    /// A process that has been stopped for a time. Others do not hear it before its first beat, and give it time to load.
    pub(super) fn stopped(&mut self, limit: Duration) -> Option<usize> {
        for ((child, end), since) in self.all.iter().zip(&mut self.stopped) {
            *since = (end.is_none() && is_stopped(child)).then(|| since.unwrap_or_else(Instant::now));
        }
        self.stopped.iter().position(|since| since.is_some_and(|since| since.elapsed() > limit))
    }

    /// The first error that one has printed. All have ended.
    pub(super) fn said(&mut self) -> Option<String> {
        self.printers.drain(..).for_each(|printer| drop(printer.join()));
        self.said.get().cloned()
    }

    /// Passes a signal on to the first process that runs.
    pub(super) fn tell(&mut self, signal: Signal) {
        let first = self.all.iter_mut().find(|(_, end)| end.is_none());
        first.into_iter().for_each(|(child, _)| send(child, signal));
    }

    /// Ends all.
    pub(super) fn kill(&mut self) {
        // A process that has ended already cannot be killed, and needs not.
        self.all.iter_mut().filter(|(_, end)| end.is_none()).for_each(|(child, _)| drop(child.kill()));
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
        self.all.iter_mut().for_each(|(child, _)| drop(child.wait()));
        self.printers.drain(..).for_each(|printer| drop(printer.join()));
    }
}

#[cfg(unix)]
fn is_stopped(child: &Child) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let status = id.and_then(|id| waitid(WaitId::Pid(id), look).ok().flatten());
    status.is_some_and(|status| status.stopped())
}

#[cfg(not(unix))]
fn is_stopped(_: &Child) -> bool {
    false
}

#[cfg(unix)]
fn send(child: &Child, signal: Signal) {
    use rustix::process::{Pid, Signal as Number, kill_process};
    let number = match signal {
        Signal::Hangup => Number::HUP,
        Signal::Interrupt => Number::INT,
        Signal::Terminate => Number::TERM,
    };
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.into_iter().for_each(|id| _ = kill_process(id, number));
}

#[cfg(not(unix))]
fn send(child: &mut Child, _: Signal) {
    drop(child.kill());
}

fn end_of(status: ExitStatus) -> End {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return End::Signal(signal);
    }
    End::Status(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// The arguments of each process: a training run is joined by TCP, or on GPUs by NCCL, unless they say otherwise.
fn with_comm(args: &[OsString]) -> Vec<OsString> {
    let has_comm = args.iter().any(|arg| arg == "--comm" || arg.as_encoded_bytes().starts_with(b"--comm="));
    let has_none = args.first().is_some_and(|first| first == "train") && !has_comm;
    let has_gpus = args.iter().any(|arg| arg == "--backend=cuda")
        || args.windows(2).any(|pair| pair[0] == "--backend" && pair[1] == "cuda");
    let added = ["--comm", if has_gpus { "nccl" } else { "tcp" }].map(OsStr::new).into_iter().filter(|_| has_none);
    args.iter().map(OsString::as_os_str).chain(added).map(OsStr::to_os_string).collect()
}

/// A thread that prints the lines that a process says, with its number before them, and notes the first error.
fn printer(number: usize, lines: impl Read + Send + 'static, said: Arc<OnceLock<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(lines);
        let prefix = format!("[{number}] ").into_bytes();
        let mut line = prefix.clone();
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            let text = String::from_utf8_lossy(&line[prefix.len()..]);
            if text.starts_with("error[") {
                said.get_or_init(|| text.trim_end().to_string());
            }
            // A closed standard error cannot be reported anywhere.
            let _ = io::stderr().lock().write_all(&line);
            line.truncate(prefix.len());
        }
    })
}

/// Has the system end this process when the one that has launched it ends, if one has.
pub fn end_with_launcher() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        let launcher: Option<i32> = env::var(LAUNCHER).ok().and_then(|id| id.parse().ok());
        let Some(launcher) = launcher.filter(|launcher| is_parent(*launcher)) else { return };
        let heard = set_parent_process_death_signal(Some(Signal::KILL));
        if heard.is_ok() && !is_parent(launcher) {
            std::process::abort();
        }
    }
}

#[cfg(target_os = "linux")]
fn is_parent(process: i32) -> bool {
    rustix::process::getppid().is_some_and(|id| id.as_raw_nonzero().get() == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_joined_by_tcp_or_nccl_unless_told() {
        let given = |text: &str| with_comm(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(given("train gpt2 --steps 3"), ["train", "gpt2", "--steps", "3", "--comm", "tcp"]);
        for text in ["train --backend cuda", "train --backend=cuda"] {
            assert_eq!(given(text).join(OsStr::new(" ")), OsString::from(format!("{text} --comm nccl")));
        }
        for text in ["train --comm mpi", "train --comm=threads", "models"] {
            assert_eq!(given(text).join(OsStr::new(" ")), text);
        }
    }
}
