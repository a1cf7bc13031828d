//! From a template's source and messages to a prompt's text, set up as `transformers` does.

use std::error::Error as _;
use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};

/// A template as a model's folder holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    pub template: String,
    /// The tokens that a template may print, as text; empty where the model has none.
    pub bos: String,
    pub eos: String,
    /// Switches of the template by their names, such as Qwen3's `enable_thinking`.
    pub switches: Switches,
}

/// Names and values.
pub type Switches = serde_json::Map<String, serde_json::Value>;

/// What a template is given.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    pub system: Option<String>,
    pub user: String,
}

/// A template that was read.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    switches: Value,
}

const NAME: &str = "chat";

/// Longest template, bytes. Those of today's models have up to 20,000.
const MAX_SOURCE: usize = 1 << 20;
/// Instructions of the template engine for one prompt. Two messages take today's models some
/// hundreds.
const FUEL: u64 = 100_000;
/// Longest prompt, bytes.
const MAX_PROMPT: usize = 4 << 20;

impl Template {
    pub(crate) fn read(Source { template, bos, eos, switches }: Source) -> Result<Self, String> {
        if template.len() > MAX_SOURCE {
            return Err(format!(
                "it has {} bytes, and at most {MAX_SOURCE} are read",
                template.len()
            ));
        }
        let environment = environment(&template).map_err(|error| reason(&error))?;
        Ok(Self { environment, bos, eos, switches: Serde(switches).into() })
    }

    /// The prompt up to where the assistant's words begin.
    pub(crate) fn render(&self, Messages { system, user }: &Messages) -> Result<String, String> {
        let message = |role: &str, content: &str| context! { role, content };
        let system = system.iter().map(|system| message("system", system));
        let messages: Vec<Value> = system.chain([message("user", user)]).collect();
        let context = context! {
            messages, add_generation_prompt => true, bos_token => &self.bos, eos_token => &self.eos,
            ..self.switches.clone()
        };
        let mut prompt = Prompt(Vec::new());
        let template = self.environment.get_template(NAME);
        let rendered = template
            .and_then(|template| template.render_captured_to(context, &mut prompt).map(drop));
        rendered.map_err(|error| reason(&error))?;
        Ok(String::from_utf8(prompt.0).expect("a template writes text"))
    }
}

/// A prompt that is being written, up to [`MAX_PROMPT`].
struct Prompt(Vec<u8>);

impl Write for Prompt {
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

/// The engine's words, and those of ours that it quotes.
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
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", fixed_date);
    environment.add_template_owned(NAME, without_generation_marks(source))?;
    Ok(environment)
}

/// `{% generation %}` marks the assistant's words for `transformers`; it prints nothing. Whitespace
/// control stays.
fn without_generation_marks(source: &str) -> String {
    let mut out = source.to_owned();
    for (mark, stand_in) in [("generation", "if true"), ("endgeneration", "endif")] {
        for open in ["{%", "{%-", "{%+"] {
            for close in ["%}", "-%}", "+%}"] {
                out = out.replace(
                    &format!("{open} {mark} {close}"),
                    &format!("{open} {stand_in} {close}"),
                );
            }
        }
    }
    out
}

/// Templates that print today's date would give another prompt each day, and a run that cannot be
/// repeated. They get the date that Llama 3's own template falls back on: 26 July 2024.
fn fixed_date(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        out.push_str(match characters.next() {
            Some('d') => "26",
            Some('b') => "Jul",
            Some('B') => "July",
            Some('m') => "07",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('H' | 'M' | 'S') => "00",
            Some('%') => "%",
            other => {
                let message =
                    format!("strftime_now does not know the directive %{}", other.unwrap_or(' '));
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, system: Option<&str>, user: &str) -> Result<String, String> {
        let switches = serde_json::json!({"enable_thinking": false, "messages": "mine"})
            .as_object()
            .unwrap()
            .clone();
        let source =
            Source { template: template.into(), bos: "<s>".into(), eos: "</s>".into(), switches };
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

    /// The constructs that the templates of Llama 3 and Qwen3 are built from.
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
        assert!(render("{{ strftime_now('%j') }}", None, "x").is_err());
    }
}
