use crate::args::{Global, LogAction, Replay};
use anyhow::Result;
pub async fn replay(_global: &Global, _args: &Replay) -> Result<()> {
    Ok(())
}
pub async fn log(_global: &Global, _action: &LogAction) -> Result<()> {
    Ok(())
}
