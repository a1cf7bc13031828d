//! A model's chat template: messages → the prompt's text. `template` renders; `child` has it done
//! by a process of its own, because a template of a few bytes can ask for all memory there is.

mod child;
mod template;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;

use crate::error::{PretrainedError, Result};
use crate::text::read_json;

use child::Renderer;
pub use child::render_as_child;
pub use template::Switches;
use template::{Messages, Source, Template};

/// Where newer folders keep their template.
const FILE: &str = "chat_template.jinja";

/// The one template of a tokenizer.
#[derive(Debug)]
pub struct Chat {
    /// The file that holds it.
    path: PathBuf,
    renders: Renders,
}

#[derive(Debug)]
enum Renders {
    Here(Box<Template>),
    Child(Mutex<Renderer>),
}

impl Chat {
    /// chat_template.jinja if it is there, else `chat_template` of tokenizer_config.json
    /// (`config`). `child` starts the process that renders it; without, this one does. It sees
    /// `switches` by their names.
    ///
    /// # Errors
    /// No template, one that is malformed, or a process that cannot be started.
    pub fn find(
        folder: &Path,
        config: &Json,
        child: Option<Command>,
        switches: Switches,
    ) -> Result<Self> {
        let (path, template) = find_template(folder, config)?;
        let token = |key: &str| match config.get(key) {
            Some(Json::String(text)) => text.clone(),
            Some(Json::Object(token)) => {
                token.get("content").and_then(Json::as_str).unwrap_or_default().into()
            }
            _ => String::new(),
        };
        let source =
            Source { template, bos: token("bos_token"), eos: token("eos_token"), switches };
        let renders = match child {
            None => Template::read(source).map(Box::new).map(Renders::Here),
            Some(command) => Renderer::start(command, &source).map(Mutex::new).map(Renders::Child),
        };
        match renders {
            Ok(renders) => Ok(Self { path, renders }),
            Err(reason) => Err(failed(&path, &reason)),
        }
    }

    /// As [`Self::find`]; `None` where the folder has no template.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn open(folder: &Path, child: Option<Command>, switches: Switches) -> Result<Option<Self>> {
        let path = folder.join("tokenizer_config.json");
        let config = if path.exists() { read_json(&path)? } else { Json::Null };
        if in_config(&config).is_none() && !folder.join(FILE).exists() {
            return Ok(None);
        }
        Self::find(folder, &config, child, switches).map(Some)
    }

    /// The prompt up to where the assistant's words begin.
    ///
    /// # Errors
    /// A template that refuses these messages, or asks for more memory or time than it is given.
    pub fn render(&self, system: Option<&str>, user: &str) -> Result<String> {
        let messages = Messages { system: system.map(str::to_owned), user: user.to_owned() };
        let rendered = match &self.renders {
            Renders::Here(template) => template.render(&messages),
            Renders::Child(renderer) => {
                renderer.lock().unwrap_or_else(PoisonError::into_inner).render(&messages)
            }
        };
        rendered.map_err(|reason| failed(&self.path, &reason))
    }
}

/// Returns the error of a template that cannot be rendered, in the template engine's words or ours.
fn failed(path: &Path, reason: &str) -> PretrainedError {
    PretrainedError::InvalidModel(format!("{}: the chat template failed: {reason}", path.display()))
}

/// A template and the file it is in.
fn find_template(folder: &Path, config: &Json) -> Result<(PathBuf, String)> {
    let file = folder.join(FILE);
    if file.exists() {
        let template =
            std::fs::read_to_string(&file).map_err(PretrainedError::io("read", &file))?;
        return Ok((file, template));
    }
    let path = folder.join("tokenizer_config.json");
    match in_config(config) {
        Some(template) => Ok((path, template)),
        None => Err(PretrainedError::malformed(
            &path,
            "a `chat_template` here, or a file chat_template.jinja beside it",
            "neither; use an instruction-tuned model's folder, or add a template",
        )),
    }
}

/// A string, or a list of named templates of which `default` is the one.
fn in_config(config: &Json) -> Option<String> {
    match config.get("chat_template")? {
        Json::String(source) => Some(source.clone()),
        Json::Array(named) => {
            let default = named
                .iter()
                .find(|entry| entry.get("name").is_some_and(|name| name == "default"))?;
            default.get("template")?.as_str().map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chat_template_exception_reaches_error() {
        let config = json!({"chat_template": "{{ raise_exception('no system role') }}"});
        let error = Chat::find(Path::new("/nowhere"), &config, None, Switches::new())
            .unwrap()
            .render(None, "x")
            .unwrap_err();
        let said = error.to_string();
        assert!(said.contains(": the chat template failed: "), "{said}");
        assert!(
            said.contains("tokenizer_config.json") && said.contains("no system role"),
            "{error}"
        );
    }

    #[test]
    fn missing_chat_template_error_names_file() {
        let error = Chat::find(Path::new("/nowhere"), &json!({}), None, Switches::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains("chat_template.jinja"), "{error}");
    }

    #[test]
    fn invalid_template_renderer_process_is_rejected() {
        let config = json!({"chat_template": "x"});
        for (program, said) in
            [("/nowhere/program", "No such file"), ("true", "ended"), ("cat", "expected")]
        {
            let error = Chat::find(
                Path::new("/nowhere"),
                &config,
                Some(Command::new(program)),
                Switches::new(),
            )
            .unwrap_err()
            .to_string();
            assert!(error.contains(said), "{program}: {error}");
        }
    }
}
