//! `meshwright launch`: starts the processes of a run on this host.

use super::Answer;
use super::signals::PassedOn;
use crate::error::Error;
use crate::launch::{LaunchRequest, launch};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ir::catalogue::Code;
use std::ffi::OsString;

/// Start several processes of `train` on this host, joined by TCP, and watch them
///
/// Each has an equal block of the devices as threads. The numbers are those of one process. A line on standard error begins with the
/// number of its process; the first process speaks for all on standard output. When a process fails, all end. SIGINT and SIGTERM are
/// passed on: all save a checkpoint and end. A second signal ends them at once.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright launch -n 2 -- train tiny-llama --data . --parallel dp=2,tp=2 --steps 20 --out runs/4
  # on several hosts, whatever starts the processes sets these variables, as torchrun does:
  # RANK=0 WORLD_SIZE=2 MASTER_ADDR=host1 MASTER_PORT=29500 meshwright train .. --comm tcp")]
pub(super) struct Launch {
    /// Number of processes, which divides the number of devices
    #[arg(short = 'n', long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    processes: usize,
    /// The subcommand `train` and its options, after `--`
    #[arg(last = true, required = true, value_name = "TRAIN")]
    args: Vec<OsString>,
}

impl Launch {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let Launch { processes, args } = self;
        if args.first().is_none_or(|first| first != "train") {
            let message = format!("`launch` starts `{}`", args[0].to_string_lossy());
            let help = "it starts processes of train: meshwright launch -n 2 -- train ..";
            return Err(Error::input(Code::BadOption, message).help(help));
        }
        let mut signals = PassedOn::watch();
        let status = launch(&LaunchRequest { processes, args }, &mut || signals.next())?;
        Ok(Answer { status, ..Answer::done(String::new()) })
    }
}
