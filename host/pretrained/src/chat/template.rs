//! Renders chat templates with the environment that `transformers` gives them.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io::Write;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::date::format_fixed_date;
use super::{methods, python};

/// A template with its variables, from a model's folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TemplateSource {
    pub template: String,
    /// Texts of the model's special tokens by name, such as `bos_token`.
    pub tokens: BTreeMap<String, String>,
    /// Variables of the template by name, such as Qwen3's `enable_thinking`.
    pub switches: Switches,
}

/// Variables of a template by name.
pub type Switches = serde_json::Map<String, serde_json::Value>;

/// The messages of a prompt.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    pub system: Option<String>,
    pub user: String,
}

/// A template that is compiled and ready to render.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    /// Variables that are the same for every prompt.
    variables: Value,
}

const NAME: &str = "chat";

/// Longest template, bytes. Those of published models have up to 20,000.
const MAX_SOURCE: usize = 1 << 20;
/// Most instructions of the template engine for one prompt. Published templates take some hundreds
/// for two messages.
const FUEL: u64 = 100_000;
/// Longest rendered prompt, bytes.
const MAX_PROMPT: usize = 4 << 20;

impl Template {
    pub(crate) fn read(source: TemplateSource) -> Result<Self, String> {
        let TemplateSource { template, tokens, switches } = source;
        if template.len() > MAX_SOURCE {
            return Err(format!(
                "it has {} bytes, and at most {MAX_SOURCE} are read",
                template.len()
            ));
        }
        let environment = environment(&template).map_err(|error| reason(&error))?;
        // `transformers` passes `None` for what a prompt does not have.
        let variables = context! {
            ..Value::from(Serde(switches)),
            ..context! { tools => (), documents => () },
            ..Value::from(Serde(tokens)),
        };
        Ok(Self { environment, variables })
    }

    /// Renders a prompt up to the start of the assistant's answer.
    pub(crate) fn render(&self, Messages { system, user }: &Messages) -> Result<String, String> {
        let mut messages: Vec<Value> = Vec::new();
        if let Some(system) = system {
            messages.push(context! { role => "system", content => system });
        }
        messages.push(context! { role => "user", content => user });
        let context =
            context! { messages, add_generation_prompt => true, ..self.variables.clone() };
        let mut prompt = PromptWriter(Vec::new());
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut prompt).map(drop))
            .map_err(|error| reason(&error))?;
        Ok(String::from_utf8(prompt.0).expect("a template writes text"))
    }
}

/// A writer that fails after [`MAX_PROMPT`] bytes.
struct PromptWriter(Vec<u8>);

impl Write for PromptWriter {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + text.len() > MAX_PROMPT {
            return Err(std::io::Error::other(format!(
                "the prompt has more than {MAX_PROMPT} bytes"
            )));
        }
        self.0.extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the engine's message, with that of its cause if it has one.
fn reason(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&python::to_str(value))?));
    environment.add_filter("string", |value: &Value| python::to_str(value));
    environment.add_filter("tojson", python::tojson);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: &str| format_fixed_date(format));
    environment.add_template_owned(NAME, as_engine_reads(source))?;
    Ok(environment)
}

/// Returns true for values that Python can iterate over; in Jinja they are sequences as well.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
    )
}

/// A tag of `{% generation %}` blocks, which mark the assistant's text for `transformers`.
static GENERATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
        .expect("the pattern is a regular expression")
});

/// Returns a template in the dialect of the engine. Line ends become `\n`, as in Jinja. A
/// `{% generation %}` block prints its content, so a block that only opens a scope replaces it.
fn as_engine_reads(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    GENERATION.replace_all(&source, "{%$1 ${2}with $3%}").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, system: Option<&str>, user: &str) -> Result<String, String> {
        let switches = serde_json::json!({"enable_thinking": false, "messages": "mine"})
            .as_object()
            .unwrap()
            .clone();
        let source = TemplateSource {
            template: template.into(),
            tokens: [("bos_token", "<s>"), ("eos_token", "</s>")]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            switches,
        };
        Template::read(source)?
            .render(&Messages { system: system.map(str::to_owned), user: user.into() })
    }

    const CHATML: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}\
                          {%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

    #[test]
    fn chatml_template_renders_expected_prompt() {
        let got = render(CHATML, Some("Be brief."), "Who?").unwrap();
        let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(got, expected);
        assert!(!render(CHATML, None, "Who?").unwrap().contains("system"));
    }

    #[test]
    fn python_methods_and_slices_work() {
        let template = "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'].strip() %}\
                        {% set messages = messages[1:] %}{% endif %}{{ bos_token }}{{ s }}|\
                        {{ messages[-1]['content'].upper() }}{{ eos_token }}";
        assert_eq!(render(template, Some("  hi "), "q").unwrap(), "<s>hi|Q</s>");
    }

    #[test]
    fn template_fuel_output_and_source_are_limited() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(render(loops, None, "q").unwrap_err().contains("engine ran out of fuel"));
        let doubled = format!(
            "{{% set s = '{}' %}}{}{{{{ s }}}}",
            "x".repeat(1 << 16),
            "{% set s = s ~ s %}".repeat(8)
        );
        assert!(render(&doubled, None, "q").unwrap_err().contains("more than 4194304 bytes"));
        assert!(render(&" ".repeat(2 << 20), None, "q").unwrap_err().contains("at most 1048576"));
    }

    /// Constructs of the templates of Llama 3 and Qwen3.
    #[test]
    fn llama_and_qwen_template_constructs_render() {
        let template = r#"{%- if not date is defined %}{%- set date = strftime_now("%d %b %Y") %}{%- endif %}
            {%- if not tools is defined %}{%- set tools = none %}{%- endif %}
            {%- set ns = namespace(open=true, last=messages|length - 1) %}
            {%- for m in messages[::-1] %}
                {%- set index = (messages|length - 1) - loop.index0 %}
                {%- if ns.open and m.role == "user" and m.content is string
                       and not (m.content.startswith('<x>') and m.content.endswith('</x>')) %}
                    {%- set ns.open = false %}{%- set ns.last = index %}
                {%- endif %}
            {%- endfor %}
            {%- if tools is not none %}{{- tools | tojson }}{%- endif %}
            {{- date + '|' ~ ns.last }}
            {%- for m in messages %}
                {%- if loop.last %}
                    {{- '|' + m.content.split('</think>')[-1].lstrip('\n') | trim }}
                {%- endif %}
            {%- endfor %}
            {%- if enable_thinking is defined and enable_thinking is false %}{{- '!' }}{%- endif %}"#;
        assert_eq!(render(template, Some("s"), "a</think>\nb ").unwrap(), "26 Jul 2024|1|b!");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let template = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}";
        assert_eq!(render(template, None, "x").unwrap(), "x\n");
    }

    #[test]
    fn generation_marks_print_nothing() {
        assert_eq!(
            render("a{%- generation -%} b {%- endgeneration -%} c", None, "x").unwrap(),
            "abc"
        );
    }

    #[test]
    fn strftime_now_returns_fixed_date() {
        assert_eq!(render("{{ strftime_now('%d %b %Y') }}", None, "x").unwrap(), "26 Jul 2024");
        assert!(render("{{ strftime_now('%Q') }}", None, "x").is_err());
    }
}
