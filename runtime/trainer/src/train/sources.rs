//! The sets of data that a request names, and their shares.

use super::request::TrainRequest;
use crate::error::Error;
use data::blend::MOST_SETS;
use ir::catalogue::Code;
use std::path::PathBuf;

/// A set of data.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NamedSet {
    pub(super) path: PathBuf,
    /// Its share of the sequences, relative to the others.
    pub(super) share: f64,
}

/// The sets of a request: those of `blend`, or else `data`.
///
/// # Errors
/// The text of the blend is wrong.
pub(super) fn sources(request: &TrainRequest) -> Result<Vec<NamedSet>, Error> {
    let Some(blend) = &request.blend else { return Ok(vec![NamedSet { path: request.data.clone(), share: 1.0 }]) };
    let sources = blend.split(',').map(|item| source(item.trim())).collect::<Result<Vec<_>, Error>>()?;
    if sources.len() > MOST_SETS {
        return Err(refused(format!("the blend has {} sets; at most {MOST_SETS} are blended", sources.len())));
    }
    Ok(sources)
}

/// A set: `PATH:SHARE`.
fn source(item: &str) -> Result<NamedSet, Error> {
    let (path, share) = item.rsplit_once(':').unwrap_or((item, ""));
    let number = share.trim().parse().ok().filter(|share: &f64| share.is_finite() && *share > 0.0);
    match number {
        Some(share) if !path.is_empty() => Ok(NamedSet { path: path.into(), share }),
        Some(_) => Err(refused(format!("`{item}` in the blend names no data"))),
        None if share.is_empty() => Err(refused(format!("`{item}` in the blend has no share"))),
        None => Err(refused(format!("`{share}` in the blend is no share of {path}: a share is a number above 0"))),
    }
}

fn refused(what: String) -> Error {
    Error::input(Code::BadOption, what)
        .help("--blend has a path and a share for each set, such as web:0.7,books:0.3; a path has no comma")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blend: &str) -> Result<Vec<(String, f64)>, String> {
        let request = TrainRequest { blend: Some(blend.into()), ..TrainRequest::default() };
        let named = |source: NamedSet| (source.path.display().to_string(), source.share);
        sources(&request).map(|found| found.into_iter().map(named).collect()).map_err(|why| why.message())
    }

    #[test]
    fn blends_have_paths_and_shares() {
        assert_eq!(of("a/b:0.7, c:3").unwrap(), [("a/b".to_string(), 0.7), ("c".to_string(), 3.0)]);
        assert_eq!(of("c:x:1e-3").unwrap(), [("c:x".to_string(), 1e-3)]);
        for (blend, why) in [
            ("a,b:1", "`a` in the blend has no share"),
            ("a:1,", "`` in the blend has no share"),
            ("a:1,:2", "`:2` in the blend names no data"),
            ("a:-1,b:1", "`-1` in the blend is no share of a"),
            ("a:nan", "`nan` in the blend is no share"),
            ("a:half", "`half` in the blend is no share of a"),
            (&["a:1"; 257].join(","), "the blend has 257 sets; at most 256"),
        ] {
            let error = of(blend).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
