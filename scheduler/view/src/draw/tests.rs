//! Contents of pictures, and the text of each format.

use super::*;
use crate::interop::{read_csv, report_imported};
use crate::report::{ScheduleRequest, report};
use scheduler::costs::{CostsFile, PerStage};
use scheduler::problem::Objective;
use serde_json::Value;

fn pictured(kind: &str, stages: u32, microbatches: u32, costs: CostsFile) -> (Picture, Timeline) {
    let request = ScheduleRequest { kind: kind.into(), stages, microbatches, costs, ..ScheduleRequest::default() };
    let (report, timeline) = report(&request).unwrap();
    let costs = request.costs.resolve(stages, stages).unwrap();
    (Picture::of(&report, &timeline, &costs), timeline)
}

fn with_hops() -> CostsFile {
    CostsFile { comm: PerStage::All(1.0), limit: Some(PerStage::All(2.0)), unit: "ms".into(), ..CostsFile::default() }
}

#[test]
fn a_picture_tells_why_and_how_much() {
    let (picture, timeline) = pictured("1f1b", 2, 3, with_hops());
    assert_eq!(picture.title, "1f1b: 2 ranks, 3 micro-batches");
    assert!(
        picture.summary.starts_with("makespan 16 ms, lower bound 14 ms: at most 14.3 % above the best; bubble 43.8 %")
    );
    let row = &picture.rows[0];
    let names: Vec<&str> = row.bars.iter().map(|bar| bar.name.as_str()).collect();
    assert_eq!(names, ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"], "without what ends the step");
    assert_eq!((row.peak, row.limit), (Some(2.0), Some(2.0)));
    let memory: Vec<[f64; 2]> =
        row.bars.iter().filter_map(|bar| bar.memory).map(|memory| [memory.during, memory.after]).collect();
    assert_eq!(memory, [[1., 1.], [2., 2.], [2., 1.], [2., 2.], [2., 1.], [1., 0.]]);
    let critical: usize = picture.rows.iter().flat_map(|row| &row.bars).filter(|bar| bar.critical).count();
    assert_eq!(critical, timeline.critical_path().len());
    let gap = row.bars[2].gap.as_ref().unwrap();
    assert_eq!((gap.since, gap.made, gap.reason), (2.0, 5.0, "memory"));
    assert_eq!(picture.rows[gap.on[0]].bars[gap.on[1]].name, "1B0");
}

#[test]
fn shades_tell_stages_and_directions() {
    let shades = |csv: &str| {
        let costs = CostsFile::default();
        let schedule = read_csv(csv).unwrap().schedule;
        let (report, timeline) = report_imported(&schedule, &costs, Objective::Makespan).unwrap();
        let stages = csv.matches("F0").count() as u32;
        let picture = Picture::of(&report, &timeline, &costs.resolve(stages, 2).unwrap());
        picture
            .rows
            .iter()
            .map(|row| row.bars.iter().map(|bar| (bar.name.clone(), bar.shade)).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let shade = |row: &[(String, f64)], name: &str| row.iter().find(|bar| bar.0 == name).unwrap().1;
    let v = shades("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0");
    assert_eq!([shade(&v[0], "0F0"), shade(&v[0], "3B0"), shade(&v[1], "1F0"), shade(&v[1], "2F0")], [0., 1., 0., 1.]);
    let two_ways = shades("0F0,1F1,1B1,0B0\n1F0,0F1,0B1,1B0");
    assert_eq!([shade(&two_ways[0], "0F0"), shade(&two_ways[0], "1F1")], [0., 1.]);
    assert_eq!([shade(&two_ways[1], "1F0"), shade(&two_ways[1], "0F1")], [0., 1.]);
}

#[test]
fn svg_holds_each_bar_once_and_nothing_outside_itself() {
    let (picture, _) = pictured("1f1b", 2, 3, with_hops());
    let text = svg(std::slice::from_ref(&picture));
    assert_eq!(text.matches("<rect class=\"bar\"").count(), 12 + 2, "bars, and two in the legend");
    let first = "<rect class=\"bar\" x=\"84\" y=\"58\" width=\"57.5\" height=\"24\" fill=\"#2a62b8\"><title>0F0: 0 to 1</title></rect>\n\
                 <text x=\"112.75\" y=\"73.96\" class=\"white\" font-size=\"11\">F0</text>";
    assert!(text.contains(first), "{text}");
    for part in [
        ">makespan 16 ms,",
        ">0 ms<",
        ">peak 2 of 2<",
        "class=\"latency\"",
        "class=\"memory\"",
        ">critical path<",
        ">memory limit<",
    ] {
        assert!(text.contains(part), "no {part}");
    }
    let links = text.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http") && !links.contains("<script"));
    let both = svg(&[picture.clone(), picture]);
    assert_eq!(both.matches("<rect class=\"bar\"").count(), 2 * 12 + 2);
}

#[test]
fn svg_shortens_what_does_not_fit() {
    let costs = CostsFile { f: PerStage::Each(vec![0.0, 1.0]), ..CostsFile::default() };
    let (picture, _) = pictured("gpipe", 2, 400, costs);
    let text = svg(&[picture]);
    assert!(text.contains(">399<") && !text.contains(">F399<"), "the micro-batch alone");
}

#[test]
fn names_are_text_not_marks() {
    let (picture, _) = pictured("1f1b", 1, 1, CostsFile::default());
    let named = Picture { title: "</script><b>&".into(), unit: "<i>".into(), ..picture };
    let page = html(std::slice::from_ref(&named));
    assert_eq!(page.matches("</script>").count(), 2, "the two of the page itself");
    assert!(!page.contains("<b>&"));
    let text = svg(&[named]);
    assert!(text.contains("&lt;/script&gt;&lt;b&gt;&amp;") && !text.contains("<i>"));
}

#[test]
fn the_page_has_all_bars_and_loads_nothing() {
    let (picture, _) = pictured("1f1b", 2, 3, with_hops());
    let page = html(&[picture.clone(), picture]);
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let bars = data["pictures"][1]["rows"][0]["bars"].as_array().unwrap();
    assert_eq!(bars[2].to_string(), r#"["B","0B0",["B0"],6,8,0,1,[2,5,"memory",1,1],[2,1]]"#);
    assert!(!page.contains("http") && !page.contains("{{"));
}

#[test]
fn a_trace_has_actions_messages_and_memory_and_can_be_compared() {
    let (picture, timeline) = pictured("1f1b", 2, 3, with_hops());
    let text = trace(&picture, &timeline);
    let file: Value = serde_json::from_str(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let events_of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!((events_of("X").len(), events_of("C").len()), (12, 24));
    assert_eq!((events_of("s").len(), events_of("f").len()), (6, 6), "each micro-batch goes down and comes back");
    let b0 = events_of("X").into_iter().find(|event| event["name"] == "0B0").unwrap();
    assert_eq!((b0["ts"].as_f64(), b0["dur"].as_f64()), (Some(6000.0), Some(2000.0)), "microseconds");
    assert_eq!(b0["args"]["waited for"], "1B0");
    for (start, end) in events_of("s").into_iter().zip(events_of("f")) {
        assert_eq!(start["id"], end["id"]);
        assert!(start["ts"].as_f64() < end["ts"].as_f64() && start["pid"] != end["pid"]);
    }

    let again = measured(&text, "step.json", "ms").unwrap();
    let times = |picture: &Picture| -> Vec<(String, f64, f64)> {
        let bars = picture.rows.iter().flat_map(|row| &row.bars);
        bars.map(|bar| (bar.name.clone(), bar.start, bar.end)).collect()
    };
    assert_eq!(times(&again), times(&picture));
    assert_eq!(again.summary, "makespan 16 ms; bubble 43.8 %");
}

#[test]
fn runs_of_a_measured_step_become_bars() {
    let run = |pid: u32, stage: u32, name: &str, microbatch: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph":"X","pid":{pid},"tid":0,"name":"{name}","ts":{ts},"dur":{dur},"args":{{"stage":{stage},"microbatch":{microbatch}}}}}"#
        )
    };
    let events = [
        run(0, 0, "embed.F", 0, 100, 10),
        run(0, 0, "layer.F", 0, 110, 30),
        run(0, 0, "layer.F %q = einsum", 0, 112, 5),
        run(0, 0, "layer.F", 1, 140, 20),
        run(1, 0, "layer.F", 0, 100, 99),
        run(2, 1, "head.B", 0, 150, 50),
    ];
    let text = format!(r#"{{"traceEvents":[{},{{"ph":"M","pid":0,"name":"process_name"}}]}}"#, events.join(","));
    let picture = measured(&text, "step.json", "us").unwrap();
    let bars = |row: &DrawnRow| row.bars.iter().map(|bar| (bar.name.clone(), bar.start, bar.end)).collect::<Vec<_>>();
    assert_eq!(bars(&picture.rows[0]), [("F0".into(), 0.0, 40.0), ("F1".into(), 40.0, 60.0)]);
    assert_eq!((bars(&picture.rows[1]), picture.makespan), (vec![("B0".into(), 50.0, 100.0)], 100.0));
    assert_eq!(measured(r#"{"traceEvents":[]}"#, "x", "s"), Err(MeasuredError::Empty));
    assert!(matches!(measured("[]", "x", "s"), Err(MeasuredError::Form(_))));
    let late = r#"{"traceEvents":[{"ph":"X","name":"0F0","ts":1e80,"dur":1}]}"#;
    assert!(matches!(measured(late, "x", "s"), Err(MeasuredError::Time(..))));
}
