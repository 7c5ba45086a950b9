//! Drawings of `meshwright schedule`: a built-in schedule or one from a file, and the schedules it is compared with.

use super::search_watch::SearchWatch;
use crate::error::Error;
use compiler::text_files::read_text;
use ir::catalogue::Code;
use ir::schedule::Schedule;
use scheduler::costs::{CostsFile, PerStage, StageCosts};
use scheduler::decimal::precise;
use scheduler::schedules::find;
use scheduler::simulate::Timeline;
use std::io::IsTerminal;
use std::path::Path;
use support::one_line::one_line;
use view::draw::{Picture, measured, verdict};
use view::grid::grid;
use view::interop::{ImportedSchedule, read_csv, read_report, report_imported};
use view::report::{ScheduleReport, ScheduleRequest, report_telling};

/// A simulated schedule with the costs that it was simulated with.
pub(super) struct Drawn {
    pub(super) report: ScheduleReport,
    pub(super) timeline: Timeline,
    costs: StageCosts,
    /// Title above the drawing.
    name: String,
    /// Notes about the file that it was read from.
    notes: Vec<String>,
}

/// The schedule that another one is compared with.
pub(super) enum Compared {
    Schedule(Box<Drawn>),
    Trace(Picture),
}

impl Drawn {
    pub(super) fn of_kind(request: &ScheduleRequest) -> Result<Drawn, Error> {
        let search = SearchWatch::new();
        let made = report_telling(request, &|line| search.line(line));
        search.over();
        let (report, timeline) = made?;
        let name = report.kind.clone();
        Drawn::new(report, timeline, &request.costs, name)
    }

    pub(super) fn from_file(path: &Path, request: &ScheduleRequest) -> Result<Drawn, Error> {
        let text = read_text(path)?;
        if is_trace(&text) {
            let message = format!("{}: a trace records times, not a schedule", path.display());
            return Err(Error::input(Code::ForeignSchedule, message).help("pass it to --compare"));
        }
        Drawn::from_text(path, &text, request)
    }

    fn from_text(path: &Path, text: &str, request: &ScheduleRequest) -> Result<Drawn, Error> {
        let within = |error: Error| error.within(&path.display().to_string());
        let read = if text.trim_start().starts_with('{') { read_report(text) } else { read_csv(text) };
        let ImportedSchedule { schedule, notes } = read.map_err(|why| within(why.into()))?;
        let (report, timeline) =
            report_imported(&schedule, &request.costs, request.objective).map_err(|why| within(why.into()))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Drawn { notes, ..Drawn::new(report, timeline, &request.costs, name)? })
    }

    fn new(report: ScheduleReport, timeline: Timeline, costs: &CostsFile, name: String) -> Result<Drawn, Error> {
        let costs = costs.resolve(stages(&timeline), report.stages)?;
        Ok(Drawn { report, timeline, costs, name, notes: Vec::new() })
    }

    pub(super) fn picture(&self) -> Picture {
        let named = ScheduleReport { kind: self.name.clone(), ..self.report.clone() };
        Picture::of(&named, &self.timeline, &self.costs)
    }

    /// Returns the simulated rows.
    pub(super) fn schedule(&self) -> Schedule {
        let rows = self.timeline.rows.iter().map(|row| row.iter().map(|slot| slot.action).collect());
        Schedule { name: self.report.kind.clone(), rows: rows.collect() }
    }
}

impl Compared {
    /// Finds a kind by its name, or reads a file.
    pub(super) fn find(what: &str, request: &ScheduleRequest, first: &Drawn) -> Result<Compared, Error> {
        let path = Path::new(what);
        match find(what) {
            Ok(_) => Compared::kind(what, request, first),
            Err(unknown) if !what.contains('.') && !path.exists() => Err(unknown.into()),
            Err(_) => {
                let text = read_text(path)?;
                if is_trace(&text) {
                    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                    let picture = measured(&text, &name, &first.report.unit);
                    return Ok(Compared::Trace(picture.map_err(|why| Error::from(why).within(what))?));
                }
                Drawn::from_text(path, &text, request).map(|drawn| Compared::Schedule(Box::new(drawn)))
            }
        }
    }

    /// Simulates the same model and micro-batches under another kind. If the other kind has a different number of
    /// stages, the costs of a stage are scaled.
    fn kind(name: &str, request: &ScheduleRequest, first: &Drawn) -> Result<Compared, Error> {
        let (ranks, microbatches) = (first.report.stages, first.report.microbatches);
        let mut request = ScheduleRequest {
            kind: name.into(),
            stages: ranks,
            microbatches,
            chunks: None,
            placement: None,
            group: None,
            slices: None,
            ..request.clone()
        };
        let share = match find(name)?.pipeline(ranks, None, microbatches) {
            Ok(pipeline) => f64::from(stages(&first.timeline)) / f64::from(pipeline.stages()),
            Err(_) => 1.0,
        };
        if share != 1.0 {
            scale(&mut request.costs, share);
        }
        let mut drawn = Drawn::of_kind(&request)?;
        if share != 1.0 {
            drawn.notes.push(format!("stage costs are scaled by {share}, so that the model is the same"));
        }
        Ok(Compared::Schedule(Box::new(drawn)))
    }

    pub(super) fn picture(self) -> Picture {
        match self {
            Compared::Schedule(drawn) => {
                let mut picture = drawn.picture();
                drawn.notes.iter().for_each(|note| picture.summary.push_str(&format!("; {note}")));
                picture
            }
            Compared::Trace(picture) => picture,
        }
    }
}

/// Scales costs that hold for all stages to stages that are `share` times as large. Costs listed by stage stay as they are, since
/// a list fits one number of stages only.
fn scale(costs: &mut CostsFile, share: f64) {
    if costs.mem_f.is_none() && costs.mem_i.is_none() && costs.mem_w.is_none() {
        costs.mem_f = Some(PerStage::All(1.0));
    }
    let memory = [&mut costs.mem_f, &mut costs.mem_i, &mut costs.mem_w].into_iter().flatten();
    for field in [&mut costs.f, &mut costs.i, &mut costs.w].into_iter().chain(memory) {
        if let PerStage::All(value) = field {
            *value *= share;
        }
    }
    costs.fb = costs.fb.map(|fb| fb * share);
}

/// Returns whether a text is a trace in Chrome's format.
fn is_trace(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"traceEvents\"")
}

fn stages(timeline: &Timeline) -> u32 {
    let items = timeline.rows.iter().flatten().flat_map(|slot| slot.action.items());
    items.filter_map(|item| item.stage).max().map_or(0, |last| last + 1)
}

/// Formats the grid and figures of a schedule, and below them those of the compared schedule.
pub(super) fn grids(drawn: &Drawn, compared: Option<Compared>, to_screen: bool) -> Result<String, Error> {
    let first = grid_of(drawn, to_screen);
    match compared {
        None => Ok(first),
        Some(Compared::Schedule(second)) => Ok(format!("{first}\n{}", grid_of(&second, to_screen))),
        Some(Compared::Trace(_)) => Err(Error::Usage("comparing with a trace requires --format svg or html".into())),
    }
}

/// Width in columns if the terminal's is unknown.
const WIDTH: usize = 120;

fn grid_of(drawn: &Drawn, to_screen: bool) -> String {
    let terminal = to_screen && std::io::stdout().is_terminal();
    let width = super::terminal::width().unwrap_or(WIDTH);
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let answer = &drawn.report;
    let peak = answer.peak_memory.iter().map(|&peak| precise(peak)).collect::<Vec<_>>().join(" ");
    let unit = &answer.unit;
    let (name, reached) = answer.reached();
    let (reached, bound) = (precise(reached), precise(answer.lower_bound));
    let verdict = verdict(answer);
    let notes: String = drawn.notes.iter().map(|note| format!("note          {}\n", one_line(note))).collect();
    format!(
        "{}\n{}: {} stages, {} micro-batches\n{name:<13} {reached} {unit}, lower bound {bound} {unit}: {verdict}\n\
         bubble        {:.1} %\npeak memory   {peak} per rank, in forward activations of a stage unless costs differ\n{notes}",
        grid(&drawn.timeline, width, colour),
        one_line(&drawn.name),
        answer.stages,
        answer.microbatches,
        100.0 * answer.bubble,
    )
}
