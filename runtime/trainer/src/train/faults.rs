//! Records of failures: the last messages of each process, in the folder of the run.

use crate::error::Error;
use comm::WireRecord;
use exec::Platform;
use ir::catalogue::Code;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use support::files;

/// The folder of the records, in that of the run.
const FOLDER: &str = "faults";

/// Writes what the wires of this process did last before a rank failed, and names the file in the error.
pub(super) fn recorded(error: Error, platform: &impl Platform, out: &Path) -> Error {
    let Error::Failed { code: code @ Code::RankFailed, message, help } = error else { return error };
    // The failure is what counts: a record that cannot be written is not named.
    let written: Vec<PathBuf> = platform.wire_records().iter().filter_map(|record| write(record, out).ok()).collect();
    let help = match written.first() {
        Some(path) => format!("{help}; {} has the last messages of this process", path.display()),
        None => help,
    };
    Error::Failed { code, message, help }
}

fn write(record: &WireRecord, out: &Path) -> io::Result<PathBuf> {
    let folder = out.join(FOLDER);
    // A link is no folder of the run.
    match fs::create_dir(&folder) {
        Err(why) if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) => return Err(why),
        _ => {}
    }
    let name = format!("{}-process-{}.json", record.step, record.process);
    let text = serde_json::to_vec_pretty(record)?;
    files::replace_in(&folder, &name, |file| file.write_all(&text))?;
    Ok(folder.join(name))
}
