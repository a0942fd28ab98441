def bar(
    iterable: Iterable[Any] | None = ...,
    label: str = ...,
    total: int | None = ...,
    unit: str = ...,
    *,
    count: Callable[[Any], int] | None = ...,
    **options: Any,
) -> Progress: ...
