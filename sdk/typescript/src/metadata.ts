type Texts = { [name: string]: string };

/** An object with metadata, of any type. */
export interface Labelled {
  /** Metadata of the object. */
  metadata?: { labels?: Texts; annotations?: Texts };
}

/** label is the value of a label; undefined if the object has none of that name. */
export function label(object: Labelled | undefined, name: string): string | undefined {
  return object?.metadata?.labels?.[name];
}

/** annotation is the value of an annotation, likewise. */
export function annotation(object: Labelled | undefined, name: string): string | undefined {
  return object?.metadata?.annotations?.[name];
}

/** setLabel sets a label, and makes `metadata.labels` if there is none. */
export function setLabel(object: Labelled, name: string, value: string): void {
  object.metadata ??= {};
  object.metadata.labels ??= {};
  object.metadata.labels[name] = value;
}

/** setAnnotation sets an annotation, likewise. */
export function setAnnotation(object: Labelled, name: string, value: string): void {
  object.metadata ??= {};
  object.metadata.annotations ??= {};
  object.metadata.annotations[name] = value;
}
