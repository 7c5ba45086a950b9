//! `meshwright launch`: starts the processes of a run on this host.

use super::auto;
use super::signals::PassedOn;
use crate::cli::{Answer, Cli, Command};
use crate::error::Error;
use crate::launch::{LaunchRequest, Observer, launch};
use crate::train::{Signal, TrainRequest};
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser};
use ir::catalogue::Code;
use ir::options::ParallelConfig;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Start several processes of `train` on this host, joined by TCP, and watch them
///
/// Each has an equal block of the devices as threads. The numbers are those of one process. With --backend cuda each has one device, on a
/// GPU of its own, and NCCL joins them. A line on standard error begins with the
/// number of its process; the first process speaks for all on standard output. When a process fails, all end. SIGINT and SIGTERM are
/// passed on: all save a checkpoint and end. A second signal ends them at once.
///
/// With --max-restarts a run whose process died, fell silent or failed goes on from its newest checkpoint (--save-every of train). It
/// does not if the same step has failed twice with the same error, or if the exit status says that the same command would fail again.
///
/// With --min-devices it also goes on with fewer processes: without one that signals end twice, or with the number that --processes-from
/// states. Data parallelism shrinks and all else stays, or a plan is searched for. The samples of a step are the same.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright launch -n 2 -- train tiny-llama --data . --parallel dp=2,tp=2 --steps 20 --out runs/4
  meshwright launch -n 2 --max-restarts 3 -- train tiny-llama --data . --parallel dp=2 \\
      --steps 20 --save-every 5 --out runs/5
  # on several hosts, whatever starts the processes sets these variables, as torchrun does:
  # RANK=0 WORLD_SIZE=2 MASTER_ADDR=host1 MASTER_PORT=29500 meshwright train .. --comm tcp")]
pub(in crate::cli) struct Launch {
    /// Number of processes, which divides the number of devices
    #[arg(short = 'n', long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    processes: usize,
    /// Restarts of a run that failed, without a checkpoint between them
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_restarts: u32,
    /// Fewest devices to go on with: with fewer processes the run goes on in another configuration, from its newest checkpoint
    #[arg(long, value_name = "N", requires = "max_restarts")]
    min_devices: Option<u64>,
    /// File that states how many processes are available; when another program changes the number, the run saves and goes on with it
    #[arg(long, value_name = "FILE", requires = "min_devices")]
    processes_from: Option<PathBuf>,
    /// The subcommand `train` and its options, after `--`
    #[arg(last = true, required = true, value_name = "TRAIN")]
    args: Vec<OsString>,
}

impl Launch {
    pub(in crate::cli) fn run(self) -> Result<Answer, Error> {
        let Launch { processes, max_restarts, min_devices, processes_from, args } = self;
        let line = std::iter::once("meshwright".into()).chain(args.iter().cloned());
        let parsed = Cli::try_parse_from(line).map_err(|told| Error::Usage(crate::cli::usage(&told)))?;
        let Command::Train(train) = parsed.command else {
            let message = format!("`launch` starts `{}`", args[0].to_string_lossy());
            let help = "it starts processes of train: meshwright launch -n 2 -- train ..";
            return Err(Error::input(Code::BadOption, message).help(help));
        };
        let train = train.request()?;
        let request = LaunchRequest { processes, args, max_restarts, train, min_devices, processes_from };
        let status = launch(&request, &mut Terminal(PassedOn::watch()))?;
        Ok(Answer { status, ..Answer::done(String::new()) })
    }
}

/// Signals, and notes on standard error.
struct Terminal(PassedOn);

impl Observer for Terminal {
    fn signal(&mut self) -> Option<Signal> {
        self.0.next()
    }

    fn note(&mut self, note: &str) {
        // A closed standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "launch: {note}");
    }

    fn plan(&mut self, train: &TrainRequest, devices: u64) -> Option<ParallelConfig> {
        auto::search(train, devices, "cpu", "").ok().flatten()
    }
}
