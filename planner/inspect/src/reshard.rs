//! A reshard: the cheapest sequence of collectives between two shardings of a tensor, and the cost of the naive path.

use compiler::error::Error;
use compiler::machine_source;
use cost::{Cluster, Platform};
use ir::catalogue::Code;
use ir::graph::{Block, Model, Span, Stmt};
use ir::ops::Op;
use ir::text::{Printer, parse};
use ir::types::Type;
use ir::verify::verify;
use planner::reshard::{ReshardStep, Site, cheapest, naive};
use serde::Serialize;
use std::fmt;
use support::table::table;
use support::units::{count, time};

/// A tensor and two shardings of it, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReshardRequest {
    /// The axes of the mesh in rank order: `x=2,y=4`.
    pub mesh: String,
    /// The sizes of the tensor: `16,16`.
    pub shape: String,
    /// Its element type.
    pub dtype: String,
    /// The source sharding: the axes of each dim, then `/{..}` the flat-shard axes, and `+{..}` or `max{..}` the axes of a partial
    /// sum or maximum.
    pub from: String,
    /// The target sharding.
    pub to: String,
    /// The cluster whose links carry the messages: a preset, or a TOML file.
    pub cluster: String,
}

/// The cheapest and the naive path between two shardings. Types and collectives are IR text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReshardReport {
    /// The source type.
    pub from: String,
    /// The target type.
    pub to: String,
    /// The cluster whose figures give the seconds of the steps.
    pub cluster: String,
    /// The cheapest path.
    #[serde(flatten)]
    pub cheapest: PathReport,
    /// The naive path: an all-gather, then a slice.
    pub naive: PathReport,
}

/// A sequence of collectives.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathReport {
    /// The steps in order.
    pub steps: Vec<StepReport>,
    /// Bytes that a rank receives, over all steps.
    pub bytes: u64,
    /// Seconds of all steps.
    pub seconds: f64,
}

/// One collective.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepReport {
    /// The collective as IR text; `%0` is the source, `%1` the result of the first step.
    pub collective: String,
    /// The type after it.
    #[serde(rename = "type")]
    pub ty: String,
    /// Bytes that a rank receives.
    pub bytes: u64,
    /// Seconds of the step.
    pub seconds: f64,
}

/// The collectives with their types, bytes and times, and the naive path; ends in a newline.
impl fmt::Display for ReshardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self))
    }
}

/// Finds the cheapest reshard path.
///
/// ```
/// use meshwright_inspect::reshard::{ReshardRequest, reshard};
///
/// let request = ReshardRequest {
///     mesh: "x=2,y=4".to_string(),
///     shape: "16,16".to_string(),
///     dtype: "f32".to_string(),
///     from: "{x},{y}".to_string(),
///     to: "{},{x}".to_string(),
///     cluster: "cpu".to_string(),
/// };
/// let report = reshard(&request)?;
/// assert!(report.cheapest.seconds < report.naive.seconds);
/// println!("{report}");
/// # Ok::<(), compiler::error::Error>(())
/// ```
///
/// # Errors
/// A sharding does not fit the mesh, no collective leads to the target, or the cluster is not known.
pub fn reshard(request: &ReshardRequest) -> Result<ReshardReport, Error> {
    let (model, from, to) = read(request)?;
    let cluster: &Cluster = &machine_source::cluster(&request.cluster)?;
    let platform = Platform::of_program(cluster);
    let site = Site::new(&model.mesh, &model.dims, &platform);
    let no_path = |_| {
        Error::input(
            Code::BadOption,
            "`--to` is partial over an axis that `--from` is not; no collective produces that",
        )
        .help("a max-reduction cannot be deferred; only sums can become partial")
    };
    let best = cheapest(&site, &from, &to, &model.mesh.tensor_axes()).map_err(no_path)?;
    let naive_path = naive(&site, &from, &to).map_err(no_path)?;
    let printed = |ty| Printer::new(&model).ty(ty, &Default::default());
    Ok(ReshardReport {
        from: printed(&from),
        to: printed(&to),
        cluster: cluster.name.clone(),
        cheapest: path_report(&model, &from, best),
        naive: path_report(&model, &from, naive_path),
    })
}

fn text(report: &ReshardReport) -> String {
    let first = ["".into(), report.from.clone(), "".into(), "".into()];
    let steps = report
        .cheapest
        .steps
        .iter()
        .map(|step| [step.collective.clone(), step.ty.clone(), count(step.bytes as f64), time(step.seconds)]);
    let rows: Vec<_> = std::iter::once(first).chain(steps).collect();
    let total = |path: &PathReport| {
        let steps = if path.steps.len() == 1 { "1 step".to_string() } else { format!("{} steps", path.steps.len()) };
        format!("{steps}, {} bytes to each rank, {}", count(path.bytes as f64), time(path.seconds))
    };
    format!(
        "{}\ntotal    {}\nnaive    {}: all-gather, then slice\n",
        table(["STEP", "TYPE", "BYTES", "TIME"], &rows),
        total(&report.cheapest),
        total(&report.naive),
    )
}

fn path_report(model: &Model, from: &Type, steps: Vec<ReshardStep>) -> PathReport {
    let printer = Printer::new(model);
    let mut block = Block::default();
    let mut value = block.add_value("0", from.clone());
    let report = |(place, step): (usize, ReshardStep)| {
        let ty = printer.ty(&step.ty, &block.values);
        let result = block.add_value(&(place + 1).to_string(), step.ty);
        let stmt = Stmt {
            results: vec![result],
            accumulate: false,
            op: Op::Collective(step.change),
            operands: vec![value],
            comments: Vec::new(),
            span: Span::default(),
        };
        value = result;
        let text = printer.stmt(&stmt, &block.values);
        let collective = text.split_once(" = ").map_or(text.as_str(), |(_, right)| right).to_string();
        StepReport { collective, ty, bytes: step.bytes.round() as u64, seconds: step.seconds }
    };
    let steps: Vec<StepReport> = steps.into_iter().enumerate().map(report).collect();
    let (bytes, seconds) = (steps.iter().map(|step| step.bytes).sum(), steps.iter().map(|step| step.seconds).sum());
    PathReport { steps, bytes, seconds }
}

/// Limits on devices, axes, dims and bytes. They are above those of any cluster and model; a mistyped size is refused at once,
/// and every answer takes seconds.
const MOST_DEVICES: u64 = 1 << 20;
const MOST_AXES: usize = 20;
const MOST_DIMS: usize = 6;
const MOST_BYTES: u64 = 1 << 50;

/// The mesh and the two types, as a file of the language: its parser and its verifier say what is wrong with them.
fn read(request: &ReshardRequest) -> Result<(Model, Type, Type), Error> {
    let shape: Vec<u64> =
        request.shape.split(',').map(str::trim).filter(|size| !size.is_empty()).map(size).collect::<Result<_, _>>()?;
    let typed = |flag: &str, sharding: &str| typed(&request.dtype, &shape, flag, sharding);
    let (from, to) = (typed("--from", &request.from)?, typed("--to", &request.to)?);
    let source = format!(
        "mesh @m = [{}]\nblock @reshard(\n  %from: {from},\n  %to: {to}\n) {{\n  return\n}}\n",
        request.mesh.trim()
    );
    let wrong =
        |diagnostics| Error::Diagnostics { file: "the command line".to_string(), source: source.clone(), diagnostics };
    let model = parse(&source).map_err(wrong)?.model;
    let axes = model.mesh.axes.values().try_fold(1u64, |all, axis| all.checked_mul(axis.size));
    if axes.is_none_or(|devices| devices > MOST_DEVICES) || model.mesh.axes.len() > MOST_AXES {
        return Err(bad(format!("`--mesh` has more than {MOST_AXES} axes or {MOST_DEVICES} devices")));
    }
    let types: Vec<Type> =
        model.blocks.values().flat_map(|block| block.args.iter().map(|arg| block.ty(arg.value))).cloned().collect();
    let [from, to] = <[Type; 2]>::try_from(types)
        .map_err(|_| bad("a sharding consists of braces and axis names only".to_string()))?;
    let bytes = shape.iter().try_fold(from.dtype.bytes(), |all, &size| all.checked_mul(size));
    if bytes.is_none_or(|bytes| bytes > MOST_BYTES) || shape.len() > MOST_DIMS {
        return Err(bad(format!("`--shape` has more than {MOST_DIMS} dims or {MOST_BYTES} bytes")));
    }
    if [&from, &to].iter().any(|ty| ty.dims.iter().any(|dim| dim.open)) {
        return Err(bad("a sharding names all axes: `?` is not allowed".to_string()));
    }
    verify(&model).map_err(wrong)?;
    Ok((model, from, to))
}

fn size(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| bad(format!("`{text}` in `--shape` is not a whole number")))
}

/// `f32[16{x}, 16]+{y}` of `{x},{}+{y}`.
fn typed(dtype: &str, shape: &[u64], flag: &str, sharding: &str) -> Result<String, Error> {
    let (mut dims, mut depth, mut rest) = (vec![String::new()], 0, "");
    for (at, c) in sharding.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => dims.push(String::new()),
            '/' | '+' | 'm' if depth == 0 => {
                rest = &sharding[at..];
                break;
            }
            c if c.is_whitespace() => {}
            c => dims.last_mut().into_iter().for_each(|dim| dim.push(c)),
        }
    }
    if shape.is_empty() {
        dims.retain(|dim| !dim.is_empty());
    }
    let braces = |dim: &String| dim.is_empty() || (dim.starts_with('{') && dim.ends_with('}'));
    if dims.len() != shape.len() || !dims.iter().all(braces) {
        return Err(bad(format!(
            "`{flag} {sharding}` does not give the axes in braces for each of {} dims",
            shape.len()
        )));
    }
    let dims: Vec<String> = shape.iter().zip(dims).map(|(size, axes)| format!("{size}{axes}")).collect();
    Ok(format!("{dtype}[{}]{rest}", dims.join(", ")))
}

fn bad(message: String) -> Error {
    Error::input(Code::BadOption, message)
        .help("for example --mesh x=2,y=4 --shape 16,16 --from '{x},{y}' --to '{},{x}+{y}'")
}
