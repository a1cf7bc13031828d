//! Circles among the files of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// Path of a module in its crate: `["advantage", "gae"]`; empty for the root.
type Module = Vec<String>;

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").unwrap());
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b\w+(?:::\w+)+").unwrap());

/// The files of a crate, by module.
struct Source {
    text: BTreeMap<Module, String>,
    /// Module → the names that it passes on, each with its path.
    passed_on: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

/// Returns the files of one circle of imports, the first at both ends; nothing if there is none.
/// `source` is the `src` folder of a crate. Tests are no part of it.
pub fn find(source: &Path) -> Vec<String> {
    let mut files = BTreeMap::new();
    read(source, &mut Vec::new(), &mut files);
    let mut source = Source { text: files, passed_on: BTreeMap::new() };
    for (module, text) in &source.text {
        let mut names = BTreeMap::new();
        for import in USE.captures_iter(text).filter(|import| import.get(1).is_some()) {
            for path in expand(&import[2]) {
                let name = path.last().unwrap().clone();
                names.insert(name, path);
            }
        }
        source.passed_on.insert(module.clone(), names);
    }
    let mut imports = BTreeMap::new();
    for (module, text) in &source.text {
        imports.insert(module.clone(), source.imports(module, text));
    }
    let mut done = BTreeSet::new();
    for module in imports.keys() {
        let mut route = Vec::new();
        if let Some(circle) = walk(module, &imports, &mut route, &mut done) {
            return circle.into_iter().map(|module| module.join("::")).collect();
        }
    }
    Vec::new()
}

/// Reads the files under `folder`, without comments and tests.
fn read(folder: &Path, module: &mut Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            module.push(name);
            read(&path, module, files);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut own = module.clone();
            if !["lib", "main", "mod"].contains(&name.as_str()) {
                own.push(name);
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<&str> =
                code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            files.entry(own).or_default().push_str(&code.join("\n"));
        }
    }
}

/// The paths of `a::{b, c::{d, e as f}}`, one by one.
fn expand(import: &str) -> Vec<Vec<String>> {
    let import = import.trim();
    let Some((head, rest)) = import.split_once('{') else {
        let path = import.split(" as ").next().unwrap();
        let segments = path.split("::").map(|segment| segment.trim().to_owned());
        return vec![segments.filter(|segment| segment != "self").collect()];
    };
    let head: Vec<String> =
        head.trim().split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let inner = &rest[..rest.rfind('}').unwrap()];
    let mut paths = Vec::new();
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    for path in expand(&inner[begin..at]) {
                        paths.push([head.clone(), path].concat());
                    }
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
    paths
}

impl Source {
    /// The modules that a file imports from.
    fn imports(&self, module: &Module, text: &str) -> BTreeSet<Module> {
        let mut paths = Vec::new();
        for import in USE.captures_iter(text).filter(|import| import.get(1).is_none()) {
            paths.extend(expand(&import[2]));
        }
        for path in PATH.find_iter(&USE.replace_all(text, "")) {
            paths.push(path.as_str().split("::").map(str::to_owned).collect());
        }
        let mut imports = BTreeSet::new();
        for path in paths {
            imports.extend(self.resolve(module, &path, 8));
        }
        // A module and those inside it are one unit: they may use what their parent defines.
        imports.retain(|other| !module.starts_with(other));
        imports
    }

    /// The module where the last name of a path is defined; `None` for another crate's, or for a
    /// module that is named alone.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            child => {
                let inner = [module.clone(), vec![child.to_owned()]].concat();
                self.text.contains_key(&inner).then_some(inner)?
            }
        };
        while let Some((next, behind)) = rest.split_first() {
            match next.as_str() {
                "super" => drop(at.pop()?),
                child => {
                    let inner = [at.clone(), vec![child.to_owned()]].concat();
                    if !self.text.contains_key(&inner) {
                        break;
                    }
                    at = inner;
                }
            }
            rest = behind;
        }
        let name = rest.first()?;
        match self.passed_on.get(&at).and_then(|names| names.get(name)) {
            Some(path) if depth > 0 => self.resolve(&at, path, depth - 1),
            Some(_) => None,
            None => Some(at),
        }
    }
}

/// Follows imports from `module`; returns the first circle on the way.
fn walk(
    module: &Module,
    imports: &BTreeMap<Module, BTreeSet<Module>>,
    route: &mut Vec<Module>,
    done: &mut BTreeSet<Module>,
) -> Option<Vec<Module>> {
    if let Some(begin) = route.iter().position(|visited| visited == module) {
        return Some([&route[begin..], std::slice::from_ref(module)].concat());
    }
    if done.contains(module) {
        return None;
    }
    route.push(module.clone());
    for next in imports.get(module).into_iter().flatten() {
        if let Some(circle) = walk(next, imports, route, done) {
            return Some(circle);
        }
    }
    route.pop();
    done.insert(module.clone());
    None
}

#[test]
fn circle_is_found_through_imports_paths_and_re_exports() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c;\npub use a::A;\n");
    write("a.rs", "use crate::b::{self, B};\npub struct A;\n");
    write("b.rs", "fn f() { crate::c::g() }\npub struct B;\n");
    write("c.rs", "pub fn g() {}\n#[cfg(test)]\nmod tests { use crate::a::A; }\n");
    assert_eq!(find(folder.path()), Vec::<String>::new());
    write("c.rs", "use crate::A;\npub fn g() {}\n");
    assert_eq!(find(folder.path()), ["a", "b", "c", "a"]);
}
