//! Folders of a crate form no circle: each can be read with those that it imports, and no others.

use super::{Source, layer_of, none_of, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Circles that belong to the matter: the crate, a module of the circle, and the reason.
const ALLOWED: &[(&str, &str, &str)] = &[("ir", "ops", "a statement has an op, and some ops expand to a graph of ops")];

/// The modules of a crate at its top, each with its files and with the modules that it imports.
#[derive(Default)]
struct Modules {
    files: BTreeMap<String, usize>,
    imports: BTreeMap<String, BTreeSet<String>>,
}

#[test]
fn folders_form_no_circle() {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_library()) {
        let layer = layer_of(&source.path);
        if let Some(module) = module_of(source, layer.folder) {
            let modules = crates.entry(layer.name).or_default();
            *modules.files.entry(module.to_string()).or_default() += 1;
            modules.imports.entry(module.to_string()).or_default().extend(imports(source, module));
        }
    }
    let mut complaints = Vec::new();
    for (name, modules) in &crates {
        for (folder, _) in modules.files.iter().filter(|(_, files)| **files > 1) {
            let allowed = ALLOWED.iter().any(|(krate, module, _)| krate == name && module == folder);
            if let Some(circle) = modules.circle(folder).filter(|_| !allowed) {
                complaints.push(format!("{name}: {}: move what the first needs of the last", circle.join(" -> ")));
            }
        }
    }
    none_of(complaints);
}

impl Modules {
    /// The shortest chain of imports from a module back to itself.
    fn circle(&self, module: &str) -> Option<Vec<String>> {
        let mut chains = vec![vec![module.to_string()]];
        let mut seen = BTreeSet::new();
        while !chains.is_empty() {
            let mut longer = Vec::new();
            for chain in chains {
                let last = chain.last().expect("a chain has its module");
                for next in self.imports.get(last).into_iter().flatten() {
                    let chain: Vec<String> = chain.iter().cloned().chain([next.clone()]).collect();
                    if next == module {
                        return Some(chain);
                    }
                    if seen.insert(next.clone()) {
                        longer.push(chain);
                    }
                }
            }
            chains = longer;
        }
        None
    }
}

/// The module at the top of its crate that a file belongs to; none for tests, and for the roots of libraries and programs.
fn module_of<'a>(source: &'a Source, folder: &str) -> Option<&'a str> {
    let inside = source.path.strip_prefix(folder).unwrap_or(&source.path);
    let inside = inside.trim_start_matches('/').strip_prefix("src/")?;
    let parts: Vec<&str> = inside.split('/').map(|part| part.trim_end_matches(".rs")).collect();
    let is_test = parts.iter().any(|part| *part == "tests" || part.ends_with("_tests"));
    (!is_test && !matches!(parts[0], "lib" | "main" | "bin")).then_some(parts[0])
}

/// The other modules at the top that a file names, outside comments and its tests.
fn imports(source: &Source, module: &str) -> BTreeSet<String> {
    let text = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = code.flat_map(|line| line.split("crate::").skip(1)).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest[..end].to_string()
    });
    named.filter(|name| !name.is_empty() && name != module).collect()
}
