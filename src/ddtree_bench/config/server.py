"""What a server is: the section `servers`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ddtree_bench.config.base import Section

Engine = Literal["reference", "sglang", "attach"]
NO_DRAFTER_NEEDED = frozenset({"AR", "NGRAM"})


class Server(Section):
    """One server configuration, measured against the others."""

    title: str | None = Field(None, description="Name in tables and charts; default: the key.")
    engine: Engine = Field(
        "reference",
        description="`reference`: this project's own engine (CPU, batch 1). "
        "`sglang`: launched from the interpreter in `python`. "
        "`attach`: a server that runs already; measured, never stopped.",
    )
    algorithm: str = Field(
        "AR",
        description="`AR` (plain decoding), `DFLASH` (chain), `DDTREE` (tree), "
        "or any other name that the engine's `--speculative-algorithm` takes.",
    )
    model: str = Field(description="Folder of the target model (Hugging Face format).")
    drafter: str | None = Field(None, description="Folder of the drafter (DFlash format).")
    block_size: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Tokens a draft block holds, the bonus token included."
    )
    budget: Annotated[int, Field(ge=1)] | None = Field(
        None, description="DDTREE: nodes of the tree besides its root; budget + 1 are verified."
    )
    topk_cap: Annotated[int, Field(ge=1)] | None = Field(
        None, description="DDTREE: candidates a depth at most; 1 makes the tree a chain."
    )
    python: str = Field(
        ".venv-reference/bin/python",
        description="Interpreter that has the engine installed (not for `attach`).",
    )
    args: tuple[str, ...] = Field(
        (), description="Further flags of the engine, as a list; no shell ever sees them."
    )
    args_add: tuple[str, ...] = Field(
        (),
        exclude=True,
        description="Flags after those of `args`, for servers that share a list by YAML's `<<`; "
        "what was measured records them as `args`.",
    )
    env: dict[str, str] = Field(
        {}, description="Environment variables of the server; they are recorded."
    )
    expects: dict[str, str | int | float | bool | None] = Field(
        {},
        description="Facts of `/server_info` that must hold, besides those that follow from the "
        "keys above; dots reach into nested ones (`cuda_graph_config.decode.max_bs`). A server "
        "that answers otherwise is not measured.",
    )
    base_url: str | None = Field(None, description="attach: where the server listens.")
    api_key_env: str | None = Field(
        None, description="attach: environment variable that holds the API key."
    )
    may_flush: bool = Field(
        False,
        description="attach: its prefix cache may be flushed. Otherwise cells are measured with "
        "whatever it holds, say so, and are not checked for being cold.",
    )
    tokenizer: str | None = Field(
        None, description="Folder with tokenizer and chat template; default: `model`."
    )
    startup_timeout_s: Annotated[float, Field(gt=0)] = Field(
        300.0, description="Deadline to be ready; first starts compile kernels for two minutes."
    )

    @property
    def tokenizer_path(self) -> str:
        """Folder that renders and tokenises this server's prompts."""
        return self.tokenizer or self.model

    @property
    def verify_width(self) -> int | None:
        """Tokens the target verifies in a step; None where the configuration does not tell."""
        if self.algorithm == "AR":
            return 1
        if self.algorithm == "DDTREE" and self.budget is not None:
            return self.budget + 1
        return self.block_size if self.algorithm == "DFLASH" else None

    @model_validator(mode="before")
    @classmethod
    def _flags_are_one_list(cls, data: object) -> object:
        """Append `args_add` to `args`; what is no list is left for its own error."""
        if not isinstance(data, dict):
            return data
        lists = [data.get(key, ()) for key in ("args", "args_add")]
        if not all(isinstance(flags, (list, tuple)) for flags in lists):
            return data
        return {**data, "args": [*lists[0], *lists[1]], "args_add": ()}

    @model_validator(mode="after")
    def _drafting_is_consistent(self) -> Self:
        if self.algorithm != "DDTREE":
            for key in ("budget", "topk_cap"):
                if getattr(self, key) is not None:
                    raise ValueError(f"`{key}` needs `algorithm: DDTREE`, not {self.algorithm}")
        elif self.budget is None:
            raise ValueError("`algorithm: DDTREE` needs `budget`")
        if self.algorithm in ("DFLASH", "DDTREE") and self.drafter is None:
            raise ValueError(f"`algorithm: {self.algorithm}` needs `drafter`")
        if self.algorithm in NO_DRAFTER_NEEDED and self.drafter is not None:
            raise ValueError(f"`drafter` is not used by `algorithm: {self.algorithm}`")
        if self.algorithm == "AR" and self.block_size is not None:
            raise ValueError("`block_size` is not used by `algorithm: AR`")
        return self

    @model_validator(mode="after")
    def _engine_is_consistent(self) -> Self:
        attached = self.engine == "attach"
        if attached and self.base_url is None:
            raise ValueError("`engine: attach` needs `base_url`")
        if attached and (self.args or self.env):
            raise ValueError("`args` and `env` cannot change a server that runs already")
        for key in ("base_url", "api_key_env"):
            if not attached and getattr(self, key) is not None:
                raise ValueError(f"`{key}` needs `engine: attach`, not {self.engine}")
        if self.may_flush and not attached:
            raise ValueError("`may_flush` needs `engine: attach`; what we start is always flushed")
        simulated = [key for key in self.env if "SIMULATE" in key.upper()]
        if simulated:
            raise ValueError(f"`env.{simulated[0]}` invents results, it is no configuration")
        if self.engine == "reference" and self.algorithm not in ("AR", "DFLASH", "DDTREE"):
            raise ValueError("`engine: reference` knows the algorithms AR, DFLASH and DDTREE")
        return self
