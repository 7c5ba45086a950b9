//! How well arenas are filled: on every mesh at most a twentieth more than the most that is there at once.

use meshwright::compiling::{Compiling, compile_source};
use meshwright::model_source::ModelSource;
use scheduler::memory::report;
use std::path::Path;

/// The most that an arena may be bigger than what is in it when it is fullest.
const WASTE: f64 = 0.05;

/// Compiles (every checker looks at the program, its places among all) and gives the classes that waste too much.
fn wasteful(model: &str, mesh: &str) -> Vec<String> {
    let source = ModelSource::open(model).unwrap_or_else(|why| panic!("{model}: {why}"));
    let order = Compiling { model: model.to_string(), mesh: mesh.to_string(), ..Compiling::default() };
    let file =
        compile_source(&source, &order, None, &mut |_, _| {}).unwrap_or_else(|why| panic!("{model} {mesh}: {why}"));
    let classes = report(&file.model, file.program.as_ref().expect("a program"));
    assert!(classes.iter().all(|class| class.bound > 0 && class.arena >= class.bound), "{model} {mesh}: {classes:?}");
    let wasteful = classes.into_iter().filter(|class| class.waste > WASTE);
    wasteful.map(|class| format!("{model} {mesh}: {class:?}")).collect()
}

fn waste_little(model: &str, meshes: &[&str]) {
    let found: Vec<String> = meshes.iter().flat_map(|mesh| wasteful(model, mesh)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_example_wastes_little() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    let layouts = ["dp=1", "dp=4", "tp=4", "dp=2,tp=2", "dp=4,zero=1", "pp=2", "dp=2,tp=2,pp=2", "dp=2,pp=2,zero=1"];
    let gpipe = layouts.map(|mesh| format!("{mesh},schedule=gpipe"));
    let meshes: Vec<&str> = layouts.into_iter().chain(gpipe.iter().map(String::as_str)).collect();
    waste_little(&path.to_string_lossy(), &meshes);
}

#[test]
fn small_models_waste_little() {
    let meshes = [
        "dp=1",
        "dp=8",
        "dp=1,mbs=8",
        "dp=4,zero=1",
        "tp=4",
        "tp=4,sp=true",
        "pp=4",
        "pp=4,mbs=8",
        "pp=4,schedule=gpipe",
        "dp=2,tp=2,pp=2",
        "dp=2,tp=2,pp=2,sp=true,zero=1",
    ];
    ["tiny-llama", "tiny-gpt2"].into_iter().for_each(|model| waste_little(model, &meshes));
}
