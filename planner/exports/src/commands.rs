//! Commands of a job: those that start it, resume it, and hold its file against the framework's own checks.

use crate::Target;
use crate::job::Job;
use crate::launch;
use std::fmt;

/// Purpose of a command.
enum Purpose {
    Start,
    Resume,
    Check,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Start => "start",
            Purpose::Resume => "resume",
            Purpose::Check => "check",
        })
    }
}

/// A way to do something with a job, in words or as a command.
struct Command {
    purpose: Purpose,
    text: String,
}

impl Target {
    /// Lines for the heading of an export.
    pub(crate) fn commands(self, job: &Job) -> Vec<String> {
        let start = self.program().map(|program| start(job, program));
        let resume = self.resumes().map(|text| Command { purpose: Purpose::Resume, text: text.to_string() });
        let commands = start.into_iter().chain(resume).chain(self.check());
        commands.flat_map(|Command { purpose, text }| lines(&purpose, &text)).collect()
    }

    /// The program that takes a file, for targets that are no scripts. Data and checkpoints are the user's.
    fn program(self) -> Option<&'static str> {
        match self {
            Target::Nanotron => Some("run_train.py --config-file THIS_FILE"),
            Target::Torchtitan => Some("-m torchtitan.train --module MODULE --config FUNCTION_THAT_RETURNS_PLANNED"),
            Target::Megatron
            | Target::MegatronBridge
            | Target::Deepspeed
            | Target::Maxtext
            | Target::TorchPipelining => None,
        }
    }

    /// How a job goes on from its last checkpoint.
    fn resumes(self) -> Option<&'static str> {
        match self {
            Target::Megatron => {
                Some("start it each time with: --save DIRECTORY --load DIRECTORY --save-interval STEPS")
            }
            Target::MegatronBridge => {
                Some("set cfg.checkpoint.save and cfg.checkpoint.load to DIRECTORY, and cfg.checkpoint.save_interval")
            }
            Target::Torchtitan => Some("set config.checkpoint.enable = True: it goes on from checkpoint.folder"),
            Target::Nanotron => Some("set checkpoints.resume_checkpoint_path to checkpoints.checkpoints_path"),
            Target::Maxtext => {
                Some("start it each time with the same run_name, base_output_directory and enable_checkpointing=true")
            }
            Target::Deepspeed | Target::TorchPipelining => None,
        }
    }

    /// The command that gives a file to the framework's own parser and checks, on a CPU.
    fn check(self) -> Option<Command> {
        match self {
            Target::TorchPipelining => None,
            _ => {
                let text = format!("python3 tests/exports/engines.py --engine {} --check THIS_FILE", self.name());
                Some(Command { purpose: Purpose::Check, text })
            }
        }
    }
}

fn start(job: &Job, program: &str) -> Command {
    let text = format!("{}{}", launch::directives(job), launch::bash(job, program));
    Command { purpose: Purpose::Start, text }
}

/// A command as lines: one behind its purpose, or several below it.
fn lines(purpose: &Purpose, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(|line| line.trim_start_matches("# ")).collect();
    match lines.as_slice() {
        [line] => vec![format!("{purpose}: {line}")],
        lines => std::iter::once(format!("{purpose}:")).chain(lines.iter().map(|line| format!("  {line}"))).collect(),
    }
}
