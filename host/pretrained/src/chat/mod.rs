//! A model's chat template: messages → the text of a prompt.
//!
//! `template` renders, with `methods`, texts and dates of Python (`python`, `date`). `child` renders in
//! a process with limits, because a template of a few bytes can allocate all memory of a machine.

mod child;
mod date;
mod methods;
mod python;
mod template;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;

use crate::error::{PretrainedError, Result};
use crate::json::read_json_if_exists;
use crate::special_tokens::special_tokens;

use child::RendererProcess;
pub use child::render_as_child;
pub use template::Switches;
use template::{Messages, Template, TemplateSource};

/// File of the template in newer model folders.
const FILE: &str = "chat_template.jinja";

/// The chat template of a tokenizer.
#[derive(Debug)]
pub struct ChatTemplate {
    /// File that holds it, for error messages.
    path: PathBuf,
    renderer: Renderer,
}

#[derive(Debug)]
enum Renderer {
    InProcess(Box<Template>),
    Child(Mutex<RendererProcess>),
}

impl ChatTemplate {
    /// Reads chat_template.jinja if it exists, else `chat_template` of `config`, the content of
    /// tokenizer_config.json.
    ///
    /// `child` starts the renderer process; without it, this process renders. The template sees
    /// `switches` by their names.
    ///
    /// # Errors
    /// Fails if there is no template, it is malformed, or the process cannot be started.
    pub fn find(
        folder: &Path,
        config: &Json,
        child: Option<Command>,
        switches: Switches,
    ) -> Result<Self> {
        let (path, template) = find_template(folder, config)?;
        let source = TemplateSource { template, tokens: special_tokens(folder, config)?, switches };
        let renderer = match child {
            None => Template::read(source).map(|parsed| Renderer::InProcess(Box::new(parsed))),
            Some(command) => RendererProcess::start(command, &source)
                .map(|process| Renderer::Child(Mutex::new(process))),
        };
        match renderer {
            Ok(renderer) => Ok(Self { path, renderer }),
            Err(reason) => Err(render_error(&path, &reason)),
        }
    }

    /// Reads the template of a folder as [`Self::find`] does; `None` if it has none.
    ///
    /// # Errors
    /// Fails as [`Self::find`].
    pub fn open(folder: &Path, child: Option<Command>, switches: Switches) -> Result<Option<Self>> {
        let config = read_json_if_exists(&folder.join("tokenizer_config.json"))?;
        if config_template(&config).is_none() && !folder.join(FILE).exists() {
            return Ok(None);
        }
        Self::find(folder, &config, child, switches).map(Some)
    }

    /// Renders a prompt up to the start of the assistant's answer.
    ///
    /// # Errors
    /// Fails if the template refuses these messages, or exceeds its limits of memory or time.
    pub fn render(&self, system: Option<&str>, user: &str) -> Result<String> {
        let messages = Messages { system: system.map(str::to_owned), user: user.to_owned() };
        let prompt = match &self.renderer {
            Renderer::InProcess(template) => template.render(&messages),
            Renderer::Child(process) => {
                process.lock().unwrap_or_else(PoisonError::into_inner).render(&messages)
            }
        };
        prompt.map_err(|reason| render_error(&self.path, &reason))
    }
}

/// Returns the error of a template that cannot be rendered.
fn render_error(path: &Path, reason: &str) -> PretrainedError {
    PretrainedError::InvalidModel(format!("{}: the chat template failed: {reason}", path.display()))
}

/// Returns a template and the file that holds it.
fn find_template(folder: &Path, config: &Json) -> Result<(PathBuf, String)> {
    let file = folder.join(FILE);
    if file.exists() {
        let template =
            corver_files::read_settings_text(&file).map_err(PretrainedError::io("read", &file))?;
        return Ok((file, template));
    }
    let path = folder.join("tokenizer_config.json");
    match config_template(config) {
        Some(template) => Ok((path, template)),
        None => Err(PretrainedError::malformed(
            &path,
            "a `chat_template` in it, or a file chat_template.jinja in the same folder",
            "neither; use an instruction-tuned model's folder, or add a template",
        )),
    }
}

/// Returns the template of tokenizer_config.json: a string, or the one called `default` in a list.
fn config_template(config: &Json) -> Option<String> {
    match config.get("chat_template")? {
        Json::String(source) => Some(source.clone()),
        Json::Array(templates) => {
            let default = templates
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
        let error = ChatTemplate::find(Path::new("/nowhere"), &config, None, Switches::new())
            .unwrap()
            .render(None, "x")
            .unwrap_err();
        let message = error.to_string();
        assert!(message.contains(": the chat template failed: "), "{message}");
        assert!(message.contains("tokenizer_config.json"), "{message}");
        assert!(message.contains("no system role"), "{message}");
    }

    #[test]
    fn missing_chat_template_error_names_file() {
        let error = ChatTemplate::find(Path::new("/nowhere"), &json!({}), None, Switches::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains("chat_template.jinja"), "{error}");
    }

    #[test]
    fn invalid_template_renderer_process_is_rejected() {
        let config = json!({"chat_template": "x"});
        for (program, message) in
            [("/nowhere/program", "No such file"), ("true", "ended"), ("cat", "unexpected")]
        {
            let error = ChatTemplate::find(
                Path::new("/nowhere"),
                &config,
                Some(Command::new(program)),
                Switches::new(),
            )
            .unwrap_err()
            .to_string();
            assert!(error.contains(message), "{program}: {error}");
        }
    }
}
