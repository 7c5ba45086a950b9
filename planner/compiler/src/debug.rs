//! `MESHWRIGHT_DEBUG=1..4`: debug output of the compiler on standard error; each level includes those below.
//!
//! | level | output |
//! |---|---|
//! | 1 | the stages and the schedule |
//! | 2 | the seconds of each pass |
//! | 3 | the sizes, bounds and values of a search over time |
//! | 4 | the text after each pass |

use ir::staged::Stage;
use ir::text::{File, print};
use std::fmt::Display;
use std::time::Instant;

/// Debug output, and the start time of the current pass.
pub struct Debug {
    level: u32,
    began: Instant,
}

impl Debug {
    /// The level in the environment; silent without one.
    pub fn from_environment() -> Debug {
        let level = std::env::var("MESHWRIGHT_DEBUG").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Debug { level, began: Instant::now() }
    }

    /// Told how a search goes.
    pub fn search(&self, line: &impl Display) {
        if self.level >= 3 {
            eprintln!("{:9.3} s  {line}", self.began.elapsed().as_secs_f64());
        }
    }

    /// Told that a pass has run.
    pub fn pass(&mut self, name: &str, file: &File) {
        if self.level >= 2 {
            eprintln!("pass {name}: {:.6} s", self.began.elapsed().as_secs_f64());
        }
        if self.level >= 4 {
            eprintln!("{}", print(file));
        } else if let (1.., "schedule", Some(schedule)) = (self.level, name, &file.schedule) {
            file.staged.iter().flat_map(|staged| &staged.stages).enumerate().for_each(say_stage);
            eprint!("{schedule}");
        }
        self.began = Instant::now();
    }
}

fn say_stage((index, stage): (usize, &Stage)) {
    let (runs, cost) = (stage.parts.iter().map(|part| part.instances.len()).sum::<usize>(), stage.cost);
    let ranks = &stage.ranks;
    eprintln!("stage {index} on {ranks:?}: {runs} blocks, F {} s, I {} s, W {} s", cost.f, cost.i, cost.w);
}
