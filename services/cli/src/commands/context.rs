//! `muster context`.

use anyhow::Result;

use crate::{
    args::{ContextAction, Global},
    context::{Config, Context},
    exit, output,
};

pub fn context(global: &Global, action: Option<&ContextAction>) -> Result<()> {
    let mut config = Config::load()?;
    match action {
        None => {
            return output::print(global.output, &config, |_| {
                let mut table = output::table(["CURRENT", "NAME", "URL", "TENANT", "NAMESPACE"]);
                for (name, context) in &config.contexts {
                    let mark = if *name == config.current { "*" } else { "" };
                    table.add_row([mark, name, &context.url, &context.tenant, &context.namespace]);
                }
                table
            });
        }
        Some(ContextAction::Use { name }) => {
            config.choose(Some(name))?;
            config.current.clone_from(name);
        }
        Some(ContextAction::Set { name, url, credentials, operator, tenant }) => {
            let context = Context {
                url: url.clone(),
                tenant: tenant.clone(),
                namespace: global.namespace.clone().unwrap_or_else(|| "default".to_owned()),
                credentials: credentials.clone(),
                operator: operator.clone(),
                data: None,
            };
            config.contexts.insert(name.clone(), context);
            if config.current.is_empty() {
                config.current.clone_from(name);
            }
        }
        Some(ContextAction::Delete { name }) => {
            if config.contexts.remove(name).is_none() {
                return Err(exit::with(exit::NOT_FOUND, format!("context {name:?} not found")));
            }
            if config.current == *name {
                config.current.clear();
            }
        }
    }
    config.save()
}
