/** A session, as the budget sees it. */
export interface BudgetMember {
  /** Called when the share has changed. */
  shareChanged(): void;
}

/**
 * Budget divides the calls that a host takes at a time over its sessions. While shares change, their sum may exceed the total; the
 * calls beyond it wait for a slot.
 */
export class Budget {
  readonly #total: number;
  readonly #members = new Set<BudgetMember>();

  constructor(total: number) {
    this.#total = total;
  }

  /** How many calls each session may take now; at least 1. */
  get share(): number {
    return Math.max(1, Math.floor(this.#total / Math.max(1, this.#members.size)));
  }

  /** add makes a session a member, and tells the others. */
  add(member: BudgetMember): void {
    this.#members.add(member);
    this.#announce(member);
  }

  /** remove is for a session that gets no new calls. It may be called again. */
  remove(member: BudgetMember): void {
    if (this.#members.delete(member)) {
      this.#announce(member);
    }
  }

  #announce(except: BudgetMember): void {
    for (const member of this.#members) {
      if (member !== except) {
        member.shareChanged();
      }
    }
  }
}
